"""The plan of a delivery, and how one that was interrupted is continued.

A target that keeps no position and cannot compare versions gets the same calls again, and no others: the
delivery that was begun is carried out as it was planned, at the table's version of then. What came later is
the next delivery.

Belongs here: the plan, and its claim in the log of the sink's deliveries. Does not belong here: the log
(`effects/delivery_log.py`), and what a plan brings (`delivery_rows.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from etl_assets.contracts.tables.effects import EFFECTS
from etl_assets.effects.delivery_log import DeliveryLog
from etl_assets.effects.store import EffectStore
from etl_assets.effects.table import EffectsTable
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sinks.sink import Delivered, SinkPosition
from etl_assets.steps.delivery_rows import DeliveryRows
from etl_assets.steps.step import StepContext

_WORKER = "delivery"
"""There is one at a time in a process: a step has the turn at the table of its deliveries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDelivery:
    """A delivery before it is carried out.

    Attributes:
        before: The target's position.
        after: Its position afterwards.
        whole: Whether every row is delivered.
        number: Rises with each delivery of the sink.
        is_continued: Whether an earlier step began it.
    """

    before: SinkPosition | None
    after: SinkPosition
    whole: bool
    number: int
    is_continued: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return what the log keeps."""
        return {
            "before": None if self.before is None else self.before.as_json(),
            "after": self.after.as_json(),
            "whole": self.whole,
            "number": self.number,
        }

    @classmethod
    def from_json(cls, plan: Mapping[str, Any]) -> PlannedDelivery:
        """Return the plan of a row of the log."""
        before = plan["before"]
        return cls(
            before=None if before is None else SinkPosition.from_json(before),
            after=SinkPosition.from_json(plan["after"]),
            whole=plan["whole"],
            number=plan["number"],
            is_continued=True,
        )


def delivery_log(context: StepContext, deliveries: str) -> DeliveryLog:
    """Return the log of a sink, by the name of the table of its deliveries."""
    table = EffectsTable(context.table(EFFECTS.name), wait_seconds=context.lock_wait_seconds)
    return DeliveryLog(EffectStore(table, sink=deliveries, domain=context.domain.name, worker=_WORKER))


def claimed(
    log: DeliveryLog, rows: DeliveryRows, wanted: PlannedDelivery, *, recorded: int
) -> tuple[PlannedDelivery, Delivered | None]:
    """Return the delivery to carry out, and its figures if only its record is missing.

    One that was begun is continued if it is not recorded, begins where the target is, brings no less than is
    wanted now, and the table's version of then can still be read. Otherwise the wanted one begins.

    Args:
        log: The log of the sink.
        rows: The rows of the wanted delivery.
        wanted: What there is to deliver now.
        recorded: The number of the last delivery that is recorded.
    """

    def continues(plan: Mapping[str, Any]) -> bool:
        begun = PlannedDelivery.from_json(plan)
        return (
            begun.number > recorded
            and begun.before == wanted.before
            and begun.after.table_id == wanted.after.table_id
            and begun.after.version <= wanted.after.version
            and begun.after.tombstones <= wanted.after.tombstones
            and begun.after.replays <= wanted.after.replays
            and (begun.whole or not wanted.whole)
            and rows.at(begun.after).is_readable()
        )

    found = log.claim(wanted.as_json(), continues)
    if found.result is not None:
        figures = {name: value for name, value in found.result.items() if name != "notes"}
        done = Delivered(**figures, notes=tuple(found.result["notes"]))
        return PlannedDelivery.from_json(found.plan), done
    plan = PlannedDelivery.from_json(found.plan)
    return replace(plan, is_continued=found.continued), None


def finish(log: DeliveryLog | None, done: Delivered, *, table: str) -> None:
    """Complete a delivery in the log, if it has one."""
    if log is not None:
        failpoint(Failpoint.SINK_BEFORE_TARGET_COMMIT, table=table)
        log.finish(asdict(done))
        failpoint(Failpoint.SINK_AFTER_TARGET_COMMIT, table=table)
