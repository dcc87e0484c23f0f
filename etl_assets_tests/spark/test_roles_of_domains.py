"""The data path over two voters, a witness and a learner, named in a platform file: one voter is lost and
comes back.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from pathlib import Path

import pytest

from etl_assets.placement.domains import Placement
from etl_assets.placement.health import FAILURES_TO_UNAVAILABLE, ProbeResult
from etl_assets.replicas.reconcile import reconcile_replicas
from etl_assets.steps.placing import place
from etl_assets_tests.pipeline import NOW, Pipeline, event
from etl_assets_tests.reference.three_domains import named_domains, root_of

pytestmark = pytest.mark.spark

A, B, WITNESS, LEARNER = "rack/a", "rack/b", "rack/w", "far/l"
STEPS = ("raw_events", "normalized_orders", "warehouse_rows")


def run(pipeline: Pipeline, placement: Placement, *, clock_off_by_hours: int = 0) -> set[str]:
    """Run each step where it is placed, on a machine whose clock is off; the domains that were used."""
    now = NOW + dt.timedelta(hours=clock_off_by_hours)
    used = set()
    for table in STEPS:
        domain = place(placement, table)
        dataclasses.replace(pipeline, works_in=domain, clock=lambda: now).run(only=[table])
        used.add(domain.name)
    return used


def ids(pipeline: Pipeline, placement: Placement, name: str) -> dict[str, list[str]]:
    """The events in each table, as a domain's own replica has them."""
    there = dataclasses.replace(pipeline, works_in=placement.named(name))
    assert all(str(there.context.table(t).path).startswith(str(root_of(placement, name))) for t in STEPS)
    return {table: sorted(row["event_id"] for row in there.rows(table)) for table in STEPS}


def held(placement: Placement, name: str, kind: str) -> dict[str, bytes]:
    root: Path = root_of(placement, name)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for table in STEPS
        for path in (root / "tables" / table).rglob(kind)
        if not path.name.startswith(".")
    }


def test_a_witness_lets_one_voter_go_on_and_a_learner_holds_what_both_acknowledged(
    pipeline, tmp_path, monkeypatch
):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    roles = {A: "voter", B: "voter", WITNESS: "witness", LEARNER: "learner"}
    placement = named_domains(tmp_path, roles)
    pipeline.land([event(number) for number in range(4)])
    assert run(pipeline, placement, clock_off_by_hours=7) == {A}
    assert reconcile_replicas(placement) == []
    expected = {table: [f"event-{number}" for number in range(4)] for table in STEPS}
    assert ids(pipeline, placement, LEARNER) == ids(pipeline, placement, B) == expected
    assert held(placement, WITNESS, "*.json") == held(placement, A, "*.json")
    assert held(placement, WITNESS, "*.parquet") == {}

    away = root_of(placement, A).rename(tmp_path / "away")
    for _ in range(FAILURES_TO_UNAVAILABLE):
        now = time.monotonic()
        placement.watch.observations.add(A, ProbeResult(began=now, ended=now, problem="its disk is gone"))
    assert {each.table: each.one_copy for each in reconcile_replicas(placement)}.items() >= dict.fromkeys(
        STEPS, True
    ).items()
    pipeline.land([event(number) for number in range(2, 6)], name="b.jsonl")
    # The machine that goes on has a clock that is hours behind that of the one that is lost.
    assert run(pipeline, placement, clock_off_by_hours=-7) == {B}
    expected = {table: [f"event-{number}" for number in range(6)] for table in STEPS}
    reconcile_replicas(placement)
    assert ids(pipeline, placement, B) == ids(pipeline, placement, LEARNER) == expected

    away.rename(root_of(placement, A))
    placement.heal(A)
    assert {each.table: each.one_copy for each in reconcile_replicas(placement)}.items() >= dict.fromkeys(
        STEPS, False
    ).items()
    assert reconcile_replicas(placement) == []
    assert ids(pipeline, placement, A) == expected
    for kind in ("*.json", "*.parquet"):
        assert held(placement, A, kind) == held(placement, B, kind) == held(placement, LEARNER, kind)
    placed = {place(placement, table).name for table in STEPS}
    assert placed == {B}, "the stages stay where they went"
