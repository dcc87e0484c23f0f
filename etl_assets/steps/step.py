"""Types that all steps share: their context, how they read, and what they report."""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
import shutil
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from etl_assets.delta.table import Table
from etl_assets.delta.write.commit import Commit
from etl_assets.delta.write.write_version import DEFAULT_LOCK_WAIT_SECONDS
from etl_assets.errors import DomainUnavailable, Leaderless
from etl_assets.placement.domains import FailureDomain
from etl_assets.processes import is_there
from etl_assets.replicas.watchdog import killed_on_hang
from etl_assets.steps.table_queue import TableQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl_assets.delta.run_token import RunToken
    from etl_assets.settings import Settings

_STAGING_NAME = re.compile(r"\d+-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{8}")
logger = logging.getLogger("etl_assets")

READ, INSERTED, UPDATED, IGNORED, REFUSED = "read", "inserted", "updated", "ignored", "refused"
DELETED, REMOVED, SKIPPED = "deleted", "removed", "skipped"


class ReadMode(StrEnum):
    """Which rows of its days a step reads.

    INCREMENTAL: rows it has not consumed. For runs that automation requests.
    WHOLE: all rows. For manual runs and backfills; rows already stored change nothing.
    """

    INCREMENTAL = "incremental"
    WHOLE = "whole"


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Context of a step: the session, the domain it was placed in, the clock.

    Attributes:
        session: Returns the Spark session, and starts it on first use; a step with nothing to do never calls
            it.
        domain: The failure domain that the step was placed in.
        clock: Returns the time, in UTC.
        lock_wait_seconds: How long a commit waits for a table's lock.
        domain_problem: Returns why the domain can no longer be used, None if it can.
        take_up: Completes the leader change of a table that has no leader.
        turns: The queue in which the step waits for other processes of this machine that write the same
            table; None: it does not wait.
        connection_wait_seconds: How long the step waits for a slot of a connection; None: as long as the
            platform file says.
        run: The fencing token of the run that the step belongs to; None for a step of no run.
    """

    session: Callable[[], SparkSession]
    domain: FailureDomain
    clock: Callable[[], dt.datetime] = _utc_now
    lock_wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS
    domain_problem: Callable[[], str | None] = lambda: None
    take_up: Callable[[str], object] = lambda table: None
    turns: TableQueue | None = None
    connection_wait_seconds: float | None = None
    run: RunToken | None = None

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.session()

    def table(self, name: str) -> Table:
        """Return a table of the platform in this domain."""
        return platform_table(name, self.domain, run=self.run)

    def turn(self, table: str) -> AbstractContextManager[None]:
        """Return a context that holds the turn at a table; see `TableQueue`.

        A writer enters it before it reads the table's version, and leaves it after its commit.
        """
        return nullcontext() if self.turns is None else self.turns.take(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepArguments:
    """Arguments from which a stage builds its step.

    Attributes:
        settings: The platform file.
        context: The context of the step, including the domain it is placed in.
        mode: Whether to read what is new, or everything.
        max_batch_bytes: Most input bytes of one batch of a source; None: the platform file's value.
        max_batches: Most batches of a source in one run; None: all that there are.
    """

    settings: Settings
    context: StepContext
    mode: ReadMode
    max_batch_bytes: int | None = None
    max_batches: int | None = None


def platform_table(name: str, domain: FailureDomain, *, run: RunToken | None = None) -> Table:
    """Return a table of the installation in a domain. One that no pipeline declares has no contract.

    Raises:
        NotFound: there is no such table.
    """
    return Table(name=name, domain=domain, contract=domain.catalog.contract_of(name), run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """Result of a step.

    Attributes:
        table: The table it wrote.
        version: The table's acknowledged version afterwards.
        counts: Figures by name, such as read, accepted, inserted, for each day or for each partition key of a
            user's asset. The key None has the figures of a table without days, and those known only for all
            days together.
        commits: Commits made; 0 if there was nothing to do.
        notes: What the operator should know, in sentences.
        domain: The failure domain it ran in, if that is not the one it is reported from.
    """

    table: str
    version: int
    counts: Mapping[Any, Counter[str]] = field(default_factory=dict)
    commits: int = 0
    notes: tuple[str, ...] = ()
    domain: str | None = None

    def total(self) -> Counter[str]:
        """Return the figures summed over all days."""
        return sum(self.counts.values(), Counter())

    def __add__(self, other: StepReport) -> StepReport:
        counts = {day: Counter(figures) for day, figures in self.counts.items()}
        for day, figures in other.counts.items():
            counts[day] = counts.get(day, Counter()) + figures
        return StepReport(
            table=self.table,
            version=max(self.version, other.version),
            counts=counts,
            commits=self.commits + other.commits,
            notes=self.notes + tuple(note for note in other.notes if note not in self.notes),
            domain=self.domain or other.domain,
        )


@contextmanager
def domain_watched(context: StepContext) -> Generator[None]:
    """Report an error that follows from the loss of the step's domain as `DomainUnavailable`.

    The loss of a domain causes all sorts of errors, in Python and in Spark. If the step meets a table without
    a leader, its own or an input, the leader change is completed before the step is repeated. If the domain
    hangs instead of failing, and tables have other domains, the process is ended (`watchdog.py`).

    Raises:
        DomainUnavailable: something failed, and the domain cannot be used now. A repeated step is placed
            again.
        Leaderless: a leader change was interrupted, and is complete now. A repeated step finds the new
            leader.
    """
    domain = context.domain
    try:
        with (
            killed_on_hang(domain.root, timeout_seconds=domain.timeout_seconds)
            if domain.sites
            else nullcontext()
        ):
            yield
    except DomainUnavailable:
        raise
    except Leaderless as error:
        context.take_up(str(error.table))
        raise
    except Exception as error:
        if (problem := context.domain_problem()) is None:
            raise
        raise DomainUnavailable(
            f"the failure domain {context.domain.name} was lost on the way: {problem}",
            fix="nothing, if another allowed domain is there: the step is repeated in it; else bring this"
            " one back",
            domain=context.domain.name,
        ) from error


class Step(Protocol):
    """A step, ready to run for any of its days.

    Running it again, however the last run ended, results in the same tables. Running it for days one by one
    results in the same rows as running it for all at once.
    """

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Consume the days and commit."""
        ...


def step_of(table: str, arguments: StepArguments) -> Step:
    """Build the step that writes a table.

    Raises:
        NotFound: no stage writes that table.
    """
    return arguments.settings.catalog().stage(table).build_step(arguments)


def upsert_counts(commit: Commit) -> Counter[str]:
    """Return the figures of an upsert's commit."""
    return Counter(
        {
            READ: commit.source_rows,
            INSERTED: commit.inserted,
            UPDATED: commit.updated,
            IGNORED: commit.ignored,
            **({DELETED: commit.deleted} if commit.deleted else {}),
        }
    )


@contextmanager
def staging_folder(table: Table, batch_id: int) -> Generator[Path]:
    """Create a folder for the files of one batch, and remove it afterwards.

    The folder's name contains the host and process that made it. The next batch removes folders of processes
    that no longer run, and leaves those of running ones.
    """
    parent = table.domain.staging_path(table.name)
    _remove_orphans(parent)
    folder = parent / f"{batch_id}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_orphans(parent: Path) -> None:
    if not parent.is_dir():
        return
    for folder in parent.iterdir():
        name = _STAGING_NAME.fullmatch(folder.name)
        if name and name["host"] == socket.gethostname() and not is_there(int(name["pid"])):
            shutil.rmtree(folder, ignore_errors=True)
