"""A bad transform got through: its tables are taken back, made again, and are those of a platform that
never had it.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import CommitConflict
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.orders.event_contracts import (
    EVENT_CONTRACTS,
    EventContract,
    EventType,
    PayloadColumn,
    PayloadField,
)
from etl_assets.orders.invariants import all_committed, nothing_lost
from etl_assets.orders.order_status import OrderStatus
from etl_assets.orders.steps import normalize
from etl_assets.placement.domain_registry import DomainRegistry
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.site import Site
from etl_assets.sources.replays import event_again, submit_replays
from etl_assets.steps import changes
from etl_assets.steps.discard_dead_letters import DiscardDeadLetters
from etl_assets.steps.invariants import dense_offsets
from etl_assets.undo.plan import plan_days, plan_restore
from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline, event
from etl_assets_tests.reference.tables import ALL_TABLES, CATALOG

pytestmark = pytest.mark.spark

DAYS = [DAY, NEXT_DAY]
BAD = {
    **EVENT_CONTRACTS,
    # The status is wrong, the amount is left out, and what has no `note` is refused.
    EventType.ORDER_CREATED: EventContract(
        status=OrderStatus.SHIPPED,
        fields=(PayloadField(name="note", column=PayloadColumn.CURRENCY, required=True),),
    ),
}
# Where a row stands in the order of normalization moves on with every time it is made, and by it which event
# is last.
OFFSETS = {
    "normalized_orders": {"offset"},
    "warehouse_rows": {"normalized_offset"},
    "order_status_view": {"last_offset", "last_event_id"},
}


def land_first(pipeline: Pipeline) -> None:
    pipeline.land([event(1), event(2, payload={"customer_id": "c", "amount": "-1"}), "no json"])


def land_more(pipeline: Pipeline) -> None:
    noted = {"customer_id": "c", "amount": "7.00", "currency": "EUR", "note": "USD"}
    pipeline.land(
        [
            event(1, event_id="paid", event_type="PaymentProcessed", payload={"amount": 3}),
            event(3),
            event(4, payload=noted),
        ],
        name="b.jsonl",
    )
    pipeline.land(
        [
            event(5, day=NEXT_DAY),
            event(6, day=NEXT_DAY, payload={**noted, "amount": "-2"}),
            event(7, day=NEXT_DAY, payload=noted),
            event(1),
        ],
        day=NEXT_DAY,
    )


def bad(pipeline: Pipeline) -> Pipeline:
    return dataclasses.replace(pipeline, contracts=BAD)


@pytest.fixture(scope="module")
def never_bad(engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The tables of a platform that has read the same files by the right code."""
    folder = tmp_path_factory.mktemp("never-bad")
    session = engine.spark_session.newSession()
    other = Pipeline(root=folder / "data", landing=folder / "landing", session=lambda: session)
    land_first(other)
    other.run(DAYS)
    land_more(other)
    other.run(DAYS)
    return tables(other)


def tables(pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    return {
        contract.name: sorted(
            (_comparable(contract.name, row) for row in pipeline.rows(contract.name)), key=repr
        )
        for contract in ALL_TABLES
    }


def _comparable(table: str, row: dict[str, Any]) -> dict[str, Any]:
    moving = {"batch_id"} | OFFSETS.get(table, set())
    if table == "audit_log" and row["stage"] != "ingest":
        moving |= {"offset", "source_position"} if row["stage"] == "commit" else {"offset"}
    # A map's entries have no order of their own.
    return {
        name: sorted(value) if isinstance(value, list) else value
        for name, value in row.items()
        if name not in moving
    }


def everywhere(pipeline: Pipeline):
    return lambda name: pipeline.domain


def checked(pipeline: Pipeline) -> None:
    for check in (nothing_lost, all_committed):
        assert check(pipeline.domain).passed
    assert dense_offsets(pipeline.domain, "normalized_orders").passed


def test_restored_and_run_again_the_tables_are_those_of_a_platform_that_never_had_it(pipeline, never_bad):
    land_first(pipeline)
    pipeline.run(DAYS)
    good = pipeline.context.table("normalized_orders").version()
    land_more(pipeline)
    bad(pipeline).run(DAYS)
    assert tables(pipeline) != never_bad

    undo = plan_restore(everywhere(pipeline), "normalized_orders", good)
    assert undo.days == tuple(DAYS)
    undo.carry_out()
    assert {row["event_id"] for row in pipeline.rows("normalized_orders")} == {"event-1"}
    checked(pipeline)
    pipeline.run(DAYS)
    assert tables(pipeline) == never_bad
    checked(pipeline)
    assert all(report.commits == 0 for report in pipeline.run(DAYS).values())


def test_days_reprocessed_are_those_of_the_current_code_and_one_of_them_again_is_the_same(
    pipeline, never_bad
):
    land_first(pipeline)
    pipeline.run(DAYS, only=["raw_events"])
    land_more(pipeline)
    bad(pipeline).run(DAYS)
    for days in (DAYS, [DAY]):
        plan_days(everywhere(pipeline), ["normalized_orders"], days).carry_out()
        checked(pipeline)
        pipeline.run(days)
        checked(pipeline)
        assert tables(pipeline) == never_bad


def test_an_undo_that_comes_after_a_step_has_read_its_cursors_is_a_conflict(pipeline, monkeypatch):
    path = ["raw_events", "normalized_orders"]
    land_first(pipeline)
    pipeline.run(DAYS, only=path)
    pipeline.land([event(3)], name="3.jsonl")
    read = normalize.read_changes

    def overtaken(*asked: Any) -> changes.Changes:
        found = read(*asked)
        plan_days(everywhere(pipeline), ["normalized_orders"], [DAY]).carry_out()
        return found

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(normalize, "read_changes", overtaken)
        with pytest.raises(CommitConflict):
            pipeline.run(DAYS, only=path)
    pipeline.run(DAYS, only=path)
    # The event between them is refused.
    assert sorted(row["raw_offset"] for row in pipeline.rows("normalized_orders")) == [0, 2]


@pytest.mark.parametrize("by", ["restore", "backup"])
def test_rows_that_came_back_under_former_offsets_do_not_come_a_second_time_under_new_ones(
    pipeline, tmp_path, by
):
    path = ["raw_events", "normalized_orders", "warehouse_rows"]
    land_first(pipeline)
    pipeline.run(DAYS, only=path)
    table = pipeline.context.table("warehouse_rows")
    former, backup = table.version(), shutil.copytree(table.path, tmp_path / "backup")
    plan_days(everywhere(pipeline), ["normalized_orders"], [DAY]).carry_out()
    pipeline.run(DAYS, only=path)
    if by == "restore":
        plan_restore(everywhere(pipeline), table.name, former).carry_out()
    else:
        shutil.rmtree(table.path)
        shutil.copytree(backup, table.path)
    for number in (3, 4):
        pipeline.land([event(number)], name=f"{number}.jsonl")
        pipeline.run(DAYS, only=path)
    keys = [row["event_id"] for row in pipeline.rows(table.name)]
    assert sorted(keys) == sorted(row["event_id"] for row in pipeline.rows("normalized_orders"))


def test_what_operators_decided_stands_when_a_day_is_made_again(pipeline):
    refused = [event(number, payload={"customer_id": "c", "amount": "-1"}) for number in (1, 2)]
    pipeline.land([*refused, event(3)])
    steps = ["raw_events", "normalized_orders", "dead_letters"]
    pipeline.run(only=steps)
    first, second = sorted(pipeline.rows("dead_letters"), key=lambda row: row["event_id"])
    submit_replays(
        pipeline.domain,
        [event_again(DAY, first["dead_letter_id"], 2, "event-1", b'{"customer_id":"c","amount":"1"}')],
    )
    letters = [_Letter(second["dead_letter_id"])]
    DiscardDeadLetters(context=pipeline.context, letters=letters, reason="test").run()  # ty: ignore[invalid-argument-type] - only these two fields are looked at
    for _ in range(2):
        plan_days(everywhere(pipeline), ["normalized_orders"], [DAY]).carry_out()
        pipeline.run(only=steps)
        states = {row["event_id"]: (row["state"], row["attempts"]) for row in pipeline.rows("dead_letters")}
        assert states == {"event-1": ("replayed", 2), "event-2": ("discarded", 1)}
        assert len(pipeline.rows("normalized_orders")) == 2


@dataclasses.dataclass(frozen=True)
class _Letter:
    dead_letter_id: str
    partition_date: Any = DAY


def test_a_mirrored_table_is_restored_to_the_same_bytes_in_all_domains(pipeline):
    sites = tuple(
        Site(name=f"local/{name}", root=str(pipeline.root / name), role=Role.VOTER) for name in "abc"
    )
    memory = DomainRegistry(pipeline.root / "domains.json")
    for site in sites:
        memory.take(site.name, site.root)
    first, second, third = (
        dataclasses.replace(
            pipeline,
            works_in=FailureDomain(catalog=CATALOG, name=site.name, root=Path(site.root), sites=sites),
        )
        for site in sites
    )
    steps = ["raw_events", "normalized_orders", "warehouse_rows"]
    first.land([event(1)])
    first.run(only=steps)
    version = first.context.table("warehouse_rows").version()
    first.land([event(2)], name="b.jsonl")
    first.run(only=steps)

    plan_restore(everywhere(first), "warehouse_rows", version).carry_out()
    assert [row["event_id"] for row in third.rows("warehouse_rows")] == ["event-1"]
    # Another domain takes the lead, and makes again what is missing.
    second.run(only=steps)
    mirrored = second.context.table("warehouse_rows").replication
    assert mirrored is not None
    mirrored.follow()
    found = [_folder(each) for each in (first, second, third)]
    assert found[0] == found[1] == found[2]
    assert sorted(row["event_id"] for row in first.rows("warehouse_rows")) == ["event-1", "event-2"]
    assert set(map(tuple, mirrored.broken().values())) == {()}


def _folder(pipeline: Pipeline) -> dict[str, bytes]:
    (folder,) = (pipeline.domain.root / "tables" / "warehouse_rows").glob("g*")
    entries = (folder / "_delta_log").glob("*.json")
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in entries if not path.name.startswith(".")
    }
