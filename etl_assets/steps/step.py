"""What all steps share: their surroundings, how they read, and what they report."""

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

from etl_assets.delta.commit import DEFAULT_LOCK_WAIT_SECONDS, Commit
from etl_assets.delta.table import Table
from etl_assets.errors import DomainUnavailable, Leaderless
from etl_assets.placement.domains import FailureDomain
from etl_assets.processes import is_there
from etl_assets.replicas.watchdog import killed_on_hang
from etl_assets.steps.table_queue import TableQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl_assets.settings import Settings

_STAGING_NAME = re.compile(r"\d+-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{8}")
logger = logging.getLogger("etl_assets")

READ, INSERTED, UPDATED, IGNORED, REFUSED = "read", "inserted", "updated", "ignored", "refused"
REMOVED = "removed"


class ReadMode(StrEnum):
    """What a step reads of its days.

    INCREMENTAL: what it has not consumed. For runs that automation asks for.
    WHOLE: everything. For runs by hand and backfills; what is there already changes nothing.
    """

    INCREMENTAL = "incremental"
    WHOLE = "whole"


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Surroundings of a step: the session, the domain it was placed in, the clock.

    `session` gives the Spark session and starts it on first use; a step with nothing to do never asks.
    `domain_problem` tells why the domain cannot be used any more, None if it can. `take_up` has a table led that nobody
    leads. `turns` is where it waits for others of this machine that write the same table; None: it does not wait.
    """

    session: Callable[[], SparkSession]
    domain: FailureDomain
    clock: Callable[[], dt.datetime] = _utc_now
    lock_wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS
    domain_problem: Callable[[], str | None] = lambda: None
    take_up: Callable[[str], object] = lambda table: None
    turns: TableQueue | None = None

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.session()

    def table(self, name: str) -> Table:
        """A table of the platform in this domain."""
        return platform_table(name, self.domain)

    def turn(self, table: str) -> AbstractContextManager[None]:
        """To be had by whoever writes a table, from before it looks at its version to after its commit; see `TableQueue`."""
        return nullcontext() if self.turns is None else self.turns.take(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepArguments:
    """What a stage builds its step from.

    Attributes:
        settings: The platform file.
        context: The surroundings of the step, among them the domain it is placed in.
        mode: Read what is new, or everything.
        max_batch_bytes: The most input of one batch of a source; None: the platform file's.
        max_batches: The most batches of a source in one run; None: all that there are.
    """

    settings: Settings
    context: StepContext
    mode: ReadMode
    max_batch_bytes: int | None = None
    max_batches: int | None = None


def platform_table(name: str, domain: FailureDomain) -> Table:
    """A table of the platform in a domain.

    Raises:
        NotFound: the platform has no such table.
    """
    return Table(name=name, domain=domain, contract=domain.catalog.table(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What a step did.

    Attributes:
        table: The table it wrote.
        version: The table's acknowledged version afterwards.
        counts: For each day, or partition key of a user's asset, figures by name, such as read, accepted, inserted;
            under None those of a table without days, or that are known for all days together only.
        commits: Commits made; 0 when there was nothing to do.
        notes: What the operator should know, in sentences.
        domain: The failure domain it ran in, where that is not the one it is reported from.
    """

    table: str
    version: int
    counts: Mapping[Any, Counter[str]] = field(default_factory=dict)
    commits: int = 0
    notes: tuple[str, ...] = ()
    domain: str | None = None

    def total(self) -> Counter[str]:
        """The figures over all days."""
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
    """Name the loss of the step's domain as what it is: all sorts of errors follow from it, in Python and in Spark.

    A table that the step meets and that nobody leads, its own or one that it reads, is led before the step is repeated. Where
    nothing fails because the domain hangs, and tables have other domains, the process is ended (`watchdog.py`).

    Raises:
        DomainUnavailable: something failed, and the domain cannot be used now. The step is placed anew when repeated.
        Leaderless: a change of leader was left in the middle, and ended here; repeated, the step finds the new leader.
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
            fix="nothing, if another allowed domain is there: the step is repeated in it; else bring this one back",
            domain=context.domain.name,
        ) from error


class Step(Protocol):
    """One step, ready to run for any of its days.

    Running it again, after whatever end, gives the same tables; running it for days one by one gives the same rows as
    running it for all at once.
    """

    def run(self, days: Sequence[dt.date]) -> StepReport:
        """Consume the days and commit."""
        ...


def step_of(table: str, arguments: StepArguments) -> Step:
    """The step that writes a table.

    Raises:
        NotFound: no stage writes that table.
    """
    return arguments.settings.catalog().stage(table).build_step(arguments)


def upsert_counts(commit: Commit) -> Counter[str]:
    """The figures of an upsert's commit."""
    return Counter(
        {
            READ: commit.source_rows,
            INSERTED: commit.inserted,
            UPDATED: commit.updated,
            IGNORED: commit.ignored,
        }
    )


@contextmanager
def staging_folder(table: Table, batch_id: int) -> Generator[Path]:
    """A folder for the files of one batch in the making; gone afterwards, and if not, with the next batch.

    Its name tells who made it, so that what a killed process left is known from what another is still using.
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
