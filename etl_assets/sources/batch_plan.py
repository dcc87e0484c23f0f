"""A planned batch of files: the input of one commit, and its form in the commit's metadata.

The commit of a batch names the files it read (`ledger.py` collects them). The batch's rejects are committed
before its rows, and that commit names the whole plan. It is all that remains of a run killed in between. The
next run carries out the same plan, or takes its rejects back, so that no line has two outcomes. A batch
killed earlier leaves nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etl_assets.sources.source_files import SourceFile

Marks = dict[str, list[int]]
"""Files of one day: `<source>/<name>` to size in bytes and modification time in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The exact input of one batch.

    Attributes:
        batch_id: The table version that the batch becomes.
        files: The files, in source order.
    """

    batch_id: int
    files: tuple[SourceFile, ...]

    @property
    def days(self) -> tuple[dt.date, ...]:
        """The days of the files, in order."""
        return tuple(sorted({file.day for file in self.files}))

    @property
    def marks(self) -> dict[str, Marks]:
        """The files by day, as commits name them."""
        marks: dict[str, Marks] = {}
        for file in self.files:
            marks.setdefault(file.day.isoformat(), {})[file.key] = [file.size, file.mtime_ns]
        return marks

    def facts(self) -> dict[str, Any]:
        """Return the facts with which the commit of the rejects names the plan."""
        return {"plan": {"batch_id": self.batch_id, "files": self.marks}}


def plan_of(facts: Mapping[str, Any]) -> BatchPlan | None:
    """Return the plan that the facts of a commit name; None if they name none."""
    if (plan := facts.get("plan")) is None:
        return None
    files = (
        SourceFile(day=dt.date.fromisoformat(day), source=source, name=name, size=size, mtime_ns=mtime_ns)
        for day, marks in plan["files"].items()
        for key, (size, mtime_ns) in marks.items()
        for source, _, name in [key.partition("/")]
    )
    return BatchPlan(batch_id=plan["batch_id"], files=tuple(sorted(files)))
