"""Planned batches of files and the ledger of what has been read: the input side of exactly once.

A batch is planned before it runs: a small durable file names the exact input of batch n, which is the version its
commit becomes. If the process dies, the same plan runs again; if the commit was made, its transaction id says so. When
batch n is in the table, its files go to the ledger of their days and the plan is removed.

The ledger is written after the commit, so it lags and never leads: a file that is read again changes nothing, because
its events are known. A day's ledger holds that day's files only, so that neither history nor other days cost anything.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from etl_assets.delta.durability import remove_durably, write_durably
from etl_assets.sources.landing import SourceFile
from etl_assets.testing.failpoints import Failpoint, failpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The exact input of one batch.

    Attributes:
        batch_id: The table version the batch becomes, and its transaction id.
        files: In source order.
    """

    batch_id: int
    files: tuple[SourceFile, ...]

    @property
    def days(self) -> tuple[dt.date, ...]:
        """The days of the files, in order."""
        return tuple(sorted({file.day for file in self.files}))

    @property
    def digest(self) -> str:
        """Identity of the content: a commit names the plan it carried out by it."""
        return hashlib.sha256(_dump([_encode(file) for file in self.files])).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBatch:
    """The last batch of files in the table: its id (-1 for none) and the digest of its plan, where still known."""

    batch_id: int
    digest: str | None


class ReadProgress:
    """Plans and ledger of one table, in its domain's progress folder."""

    def __init__(self, folder: Path) -> None:
        self._plans = folder / "plans"
        self._ledger = folder / "ledger"

    def plan(self, batch_id: int, files: Iterable[SourceFile]) -> BatchPlan:
        """Write the plan of a batch durably."""
        plan = BatchPlan(batch_id=batch_id, files=tuple(sorted(files)))
        failpoint(Failpoint.PLAN_BEFORE_WRITE)
        write_durably(self._plan_path(batch_id), _dump({"files": [_encode(file) for file in plan.files]}))
        failpoint(Failpoint.PLAN_AFTER_WRITE)
        return plan

    def pending(self, *, table_version: int, committed: CommittedBatch) -> BatchPlan | None:
        """The plan that was made and not carried out, after settling all others.

        Args:
            table_version: Newest version of the table.
            committed: The last batch of files in the table.
        """
        pending = None
        for plan in self._plan_files():
            if _carried_out(plan, committed):
                self.record(plan)
            elif plan.batch_id == table_version + 1:
                pending = plan
            else:
                # Another commit took the version, so this plan can never be carried out; its files are still unread.
                self.discard(plan)
        return pending

    def record(self, plan: BatchPlan) -> None:
        """Note a committed plan's files as read and remove the plan. Doing it twice changes nothing."""
        failpoint(Failpoint.LEDGER_BEFORE_WRITE)
        for day in plan.days:
            write_durably(self._ledger_path(day), _dump(self._read_ledger(day) | _marks(plan, day)))
        failpoint(Failpoint.LEDGER_AFTER_WRITE)
        failpoint(Failpoint.PLAN_BEFORE_REMOVE)
        self.discard(plan)

    def discard(self, plan: BatchPlan) -> None:
        """Remove a plan; its files are unread again if it was not committed."""
        remove_durably([self._plan_path(plan.batch_id)])

    def unread(self, files: Sequence[SourceFile], *, committed: CommittedBatch) -> tuple[SourceFile, ...]:
        """Those of one day's files that no committed batch has read as they are now."""
        if not files or committed.batch_id < 0:
            # Without a batch in the table nothing has been read, whatever the ledger of an earlier table says.
            return tuple(files)
        day = files[0].day
        read = self._read_ledger(day)
        for plan in self._plan_files():
            if _carried_out(plan, committed):
                read |= _marks(plan, day)
        return tuple(file for file in files if read.get(file.key) != [file.size, file.mtime_ns])

    def changed(self, files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
        """Those of one day's files that were read when they had another size or time."""
        read = self._read_ledger(files[0].day) if files else {}
        now = {file.key: [file.size, file.mtime_ns] for file in files}
        return tuple(file for file in files if read.get(file.key, now[file.key]) != now[file.key])

    def _plan_files(self) -> Iterator[BatchPlan]:
        for path in sorted(self._plans.glob("[0-9]*.json")):
            content = json.loads(path.read_bytes())
            yield BatchPlan(batch_id=int(path.stem), files=tuple(_decode(file) for file in content["files"]))

    def _plan_path(self, batch_id: int) -> Path:
        return self._plans / f"{batch_id:020d}.json"

    def _ledger_path(self, day: dt.date) -> Path:
        return self._ledger / f"{day.isoformat()}.json"

    def _read_ledger(self, day: dt.date) -> dict[str, list[int]]:
        try:
            return json.loads(self._ledger_path(day).read_bytes())
        except FileNotFoundError:
            return {}


def _carried_out(plan: BatchPlan, committed: CommittedBatch) -> bool:
    return plan.batch_id == committed.batch_id and plan.digest == committed.digest


def _marks(plan: BatchPlan, day: dt.date) -> dict[str, list[int]]:
    """What the ledger keeps of a plan's files of one day."""
    return {file.key: [file.size, file.mtime_ns] for file in plan.files if file.day == day}


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _encode(file: SourceFile) -> dict[str, Any]:
    return {**asdict(file), "day": file.day.isoformat()}


def _decode(value: dict[str, Any]) -> SourceFile:
    return SourceFile(
        day=dt.date.fromisoformat(value["day"]),
        source=value["source"],
        name=value["name"],
        size=value["size"],
        mtime_ns=value["mtime_ns"],
    )
