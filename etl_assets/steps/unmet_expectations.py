"""Expectations that rows of a load do not meet: counted, and what follows from it.

Belongs here: the failure or the warning of a run. Does not belong here: the condition of an expectation, and
rows that one drops (`transforms/declared_transforms.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etl_assets.errors import ExpectationFailed
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.pipelines.transform_specs import ExpectationsTransform, OnViolation
from etl_assets.transforms.analysis import place_of
from etl_assets.transforms.declared_transforms import unmet

Figures = Mapping[str, Any]
"""Counts of some rows, with those of `unmet`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """An expectation that some rows do not meet.

    Attributes:
        place: The place of its transform in the declaration.
        rule: Its name.
        on_violation: What it declares for such rows.
        rows: Their number.
    """

    place: str
    rule: str
    on_violation: OnViolation
    rows: int

    def __str__(self) -> str:
        rows = "1 row does" if self.rows == 1 else f"{self.rows} rows do"
        return f"{rows} not meet"


def fail_if_declared(spec: PipelineSpec, figures: Figures, *, table: str) -> None:
    """Fail if rows do not meet an expectation that says so.

    Raises:
        ExpectationFailed: carries `table`, `rule` and `rows`.
    """
    for found in _unmet(spec, [figures]):
        if found.on_violation is OnViolation.FAIL:
            raise ExpectationFailed(
                f"{found.place}: {found} the rule {found.rule}, whose violation fails the run",
                fix="correct the records at their source and load them, or set `on_violation` to drop or"
                " warn. Nothing was written",
                table=table,
                rule=found.rule,
                rows=found.rows,
            )


def warnings_of(spec: PipelineSpec, figures: Sequence[Figures]) -> tuple[str, ...]:
    """Return a sentence for each expectation that rows do not meet, drop or warn."""
    return tuple(f"{found.place}: rule {found.rule}: {found} it" for found in _unmet(spec, figures))


def _unmet(spec: PipelineSpec, figures: Sequence[Figures]) -> Iterator[Unmet]:
    for index, transform in enumerate(spec.transforms):
        if not isinstance(transform, ExpectationsTransform):
            continue
        for number, rule in enumerate(transform.rules):
            if rows := sum(each.get(unmet(index, number), 0) for each in figures):
                place = place_of(index, transform.type)
                yield Unmet(place=place, rule=rule.name, on_violation=rule.on_violation, rows=rows)
