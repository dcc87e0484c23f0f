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
from pathlib import Path
from typing import Any

from etl_assets.delta.log.log_places import LogPlace, facts_after
from etl_assets.sources.ranges import ReadRange
from etl_assets.sources.source_files import SourceFile

Marks = dict[str, list[int]]
"""Files of one day: `<source>/<name>` to size in bytes and modification time in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The exact input of one batch.

    Attributes:
        batch_id: The table version that the batch becomes.
        files: The files, in source order.
        wanted: The range of the source that the files have the records of; None for files of folders.
        planned_days: Days of the plan of a range, whose files are not there any more.
    """

    batch_id: int
    files: tuple[SourceFile, ...]
    wanted: ReadRange | None = None
    planned_days: tuple[dt.date, ...] = ()

    @property
    def days(self) -> tuple[dt.date, ...]:
        """The days of the files, in order."""
        return tuple(sorted({*self.planned_days, *(file.day for file in self.files)}))

    @property
    def marks(self) -> dict[str, Marks]:
        """The files by day, as commits name them. A range has none: its positions are committed."""
        if self.wanted is not None:
            return {}
        marks: dict[str, Marks] = {}
        for file in self.files:
            marks.setdefault(file.day.isoformat(), {})[file.key] = [file.size, file.mtime_ns]
        return marks

    def facts_of_range(self, table_path: Path) -> dict[str, Any]:
        """Return what the commit of a range's rows says beside the files.

        Args:
            table_path: Folder of the table that gets the rows.
        """
        found = {} if self.wanted is None else self.wanted.facts
        return {**found, **facts_after(table_path, self.batch_id - 1, LogPlace.of(found))}

    def facts(self) -> dict[str, Any]:
        """Return the facts with which the commit of the rejects names the plan."""
        plan = {"batch_id": self.batch_id, "files": self.marks}
        if self.wanted is not None:
            plan["range"] = {
                "begin": self.wanted.begin,
                "end": self.wanted.end,
                "details": self.wanted.details,
                "days": [day.isoformat() for day in self.days],
            }
        return {"plan": plan}


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
    wanted, days = None, ()
    if (of_range := plan.get("range")) is not None:
        wanted = ReadRange(begin=of_range["begin"], end=of_range["end"], details=of_range["details"])
        days = tuple(map(dt.date.fromisoformat, of_range["days"]))
    return BatchPlan(batch_id=plan["batch_id"], files=tuple(sorted(files)), wanted=wanted, planned_days=days)
