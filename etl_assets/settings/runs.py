"""Settings of the work: runs, the resident worker, and maintenance."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from etl_assets.settings.section import Section

MIN_KEPT_VERSIONS = 100
"""Number of a table's last commits that are searched for cursors."""


class RunSettings(Section):
    """How Dagster's runs are cut and repeated."""

    max_days_per_run: Annotated[
        int, Field(ge=1, le=366, description="days one backfill or sensor run may hold")
    ] = 31
    small_run_bytes: Annotated[
        int,
        Field(
            ge=0,
            description="a run that reads no more bytes of files than this may hold up to 366 days, whatever"
            " `max_days_per_run` says; 0: no run may. Backfills do not know how much they read",
        ),
    ] = 67_108_864
    max_retries: Annotated[
        int, Field(ge=0, le=20, description="repetitions of a step after a transient error")
    ] = 3
    retry_delay_seconds: Annotated[
        float, Field(ge=0, le=3600, description="first delay; doubles, with full jitter")
    ] = 2.0
    sensor_interval_seconds: Annotated[
        int, Field(ge=1, le=3600, description="seconds between ticks of the sensors")
    ] = 5
    lock_wait_seconds: Annotated[
        float, Field(ge=0, le=3600, description="how long to wait for a table's other writer")
    ] = 60.0
    connection_wait_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=86_400,
            description="how long a step of a run or command waits for a connection with `max_concurrency`;"
            " the worker goes on with other pipelines meanwhile",
        ),
    ] = 600.0
    engine_locations: Annotated[
        tuple[str, ...],
        Field(
            examples=["my_project"],
            description="code locations of your own, by name, whose runs the warm engine executes too",
        ),
    ] = ()


class WorkerSettings(Section):
    """The resident process that carries new events through (`etl-assets worker`)."""

    parallel: Annotated[
        int,
        Field(
            ge=1,
            le=64,
            description="pipelines that are worked on at the same time, so that a slow one does not keep the"
            " others waiting; each has a Spark session, and its share of `max_batch_bytes`. 1: one after"
            " another",
        ),
    ] = 2
    parallel_copies: Annotated[
        int,
        Field(
            ge=1,
            le=64,
            description="captured tables whose rows are copied at the same time, beside the `parallel`"
            " pipelines, so that copies keep no other table waiting",
        ),
    ] = 2
    batch_interval_seconds: Annotated[
        float,
        Field(
            ge=0.05,
            le=3600,
            description="from the start of one micro-batch to that of the next, if it is done by then; also"
            " how often new files are looked for",
        ),
    ] = 1.0
    max_batch_bytes: Annotated[
        int,
        Field(
            ge=1_048_576,
            description="input of the micro-batches that are under way, compressed size; each of `parallel`"
            " ones has an equal share, and what is more goes through with the next ones",
        ),
    ] = 67_108_864
    most_small_files: Annotated[
        int,
        Field(
            ge=2,
            le=1_000,
            description="each micro-batch is a file; when a day of a table has more small ones of about a"
            " size, they are made one",
        ),
    ] = 50
    derived_interval_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="from the end of bringing the tables beside the data paths (such as dead_letters) up"
            " to date to the next time",
        ),
    ] = 20.0
    report_interval_seconds: Annotated[
        float,
        Field(
            ge=1,
            le=3600,
            description="between reports to Dagster: one row for each asset and day, and one for each check,"
            " however many micro-batches there were",
        ),
    ] = 60.0

    @property
    def threads(self) -> int:
        """Micro-batches that may be under way at the same time."""
        return self.parallel + self.parallel_copies

    @property
    def batch_bytes_of_each(self) -> int:
        """Input of one of the micro-batches that are under way at the same time."""
        return max(1, self.max_batch_bytes // self.parallel)


class UpkeepSettings(Section):
    """What goes from tables by itself."""

    keep_log_versions: Annotated[
        int,
        Field(
            ge=MIN_KEPT_VERSIONS,
            description="versions of a table that stay readable; older log entries go, in every domain. Data"
            " files stay until `tables vacuum`",
        ),
    ] = 10_000
