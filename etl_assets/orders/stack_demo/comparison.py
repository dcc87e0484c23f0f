"""What was sent, what the tables have, what arrived in each sink: counted apart, and held against each other.

Belongs here: the figures of a pipeline and what is wrong with them. Does not belong here: counting at the
sources (`feed.py`) and in the sinks (`targets.py`), and showing the figures (`report.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from etl_assets.contracts.reasons import Outcome
from etl_assets.delta.table import Table
from etl_assets.observability.outcomes import outcomes_by_day
from etl_assets.pipelines.stage import Stage
from etl_assets.placement.domains import FailureDomain


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFigures:
    """One line of the demo's table.

    Attributes:
        pipeline: Its name.
        input: Records at the source.
        accepted: Records that were accepted, and are good enough for the table.
        duplicates: Records that were known.
        rejected: Dead letters, of both stages.
        rows: Rows of the table.
        delivered: Rows of the table that each sink has.
        wrong: What is not equal, as sentences; empty if all is well.
    """

    pipeline: str
    input: int
    accepted: int
    duplicates: int
    rejected: int
    rows: int
    delivered: Mapping[str, int]
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTables:
    """The tables of a declared pipeline, in the domain that serves readers.

    Attributes:
        name: The pipeline's name.
        domain: The domain.
    """

    name: str
    domain: FailureDomain

    @property
    def outcomes(self) -> Counter[str]:
        """Records by outcome, over all days; rejected ones of both stages."""
        source = self.domain.catalog.stage(f"{self.name}_source")
        total: Counter[str] = Counter()
        for of_day in outcomes_by_day(self.domain, source).values():
            total.update(of_day)
        refused = self._rejected_rows
        return Counter(
            {
                Outcome.ACCEPTED.value: total[Outcome.ACCEPTED.value] - refused,
                Outcome.DUPLICATE.value: total[Outcome.DUPLICATE.value],
                Outcome.REJECTED.value: total[Outcome.REJECTED.value]
                + total[Outcome.CONFLICT.value]
                + refused,
            }
        )

    @property
    def key(self) -> str:
        """The key column."""
        return self._stage.table.merge_key[0]

    @property
    def keys(self) -> Counter[str]:
        """The keys of the table's rows, as texts."""
        snapshot = self._table(self._stage).snapshot()
        if snapshot is None:
            return Counter()
        column: Any = self.key
        return Counter(
            str(value)
            for batch in snapshot.dataset().to_batches(columns=[column])
            for value in batch.column(0).to_pylist()
        )

    @property
    def _stage(self) -> Stage:
        return self.domain.catalog.stage(self.name)

    @property
    def _rejected_rows(self) -> int:
        rejects = self._stage.rejects
        if rejects is None:
            return 0
        snapshot = Table(name=rejects.name, domain=self.domain, contract=rejects).snapshot()
        return 0 if snapshot is None else sum(snapshot.rows_by("outcome").values())

    def _table(self, stage: Stage) -> Table:
        return Table(name=stage.name, domain=self.domain, contract=stage.table)


def compare(
    tables: PipelineTables,
    *,
    sent: int,
    at_source: Counter[str] | None,
    readers: Mapping[str, Callable[[str, str], Counter[str]]],
) -> PipelineFigures:
    """Hold a pipeline's tables against its source and its sinks.

    Args:
        tables: The tables.
        sent: Records at the source.
        at_source: The keys at the source, of one whose rows change: the table has each once. None for a
            source of events: each record has one outcome.
        readers: For each sink a function from pipeline and key column to the keys that it has.
    """
    outcomes, keys = tables.outcomes, tables.keys
    accepted = outcomes[Outcome.ACCEPTED.value]
    delivered = {sink: read(tables.name, tables.key) for sink, read in readers.items()}
    wrong = [*_differences("the table", keys, "once each", Counter(set(keys)))]
    if at_source is None:
        if sent != outcomes.total():
            wrong.append(f"{sent:,} records were sent, and {outcomes.total():,} have an outcome")
        if accepted != keys.total():
            wrong.append(f"{accepted:,} records were accepted, and the table has {keys.total():,} rows")
    else:
        wrong += _differences("the table", keys, "the source", at_source)
    for sink, found in delivered.items():
        wrong += _differences(sink, found, "the table", keys)
    return PipelineFigures(
        pipeline=tables.name,
        input=sent,
        accepted=accepted,
        duplicates=outcomes[Outcome.DUPLICATE.value],
        rejected=outcomes[Outcome.REJECTED.value],
        rows=keys.total(),
        delivered={sink: found.total() for sink, found in delivered.items()},
        wrong=tuple(f"{tables.name}: {each}" for each in wrong),
    )


def _differences(one: str, found: Counter[str], other: str, expected: Counter[str]) -> Iterator[str]:
    """Yield what one side has and the other has not. Keys are no secrets, and few are named."""
    more, less = found - expected, expected - found
    if more:
        yield f"{one} has {more.total():,} rows more than {other}, such as {next(iter(more))}"
    if less:
        yield f"{one} lacks {less.total():,} rows of {other}, such as {next(iter(less))}"
