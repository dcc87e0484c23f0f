"""The targets that the cases judge by are the ones that were agreed on."""

from __future__ import annotations

from types import ModuleType

import pytest

from benchmarks import cases
from benchmarks.cases import CASES

AGREED: dict[str, dict[str, float]] = {
    "bulk": {"TARGET": 1.15},
    # 150,000 changes a second on one core.
    "captures_idle": {"CORES_TARGET": 0.02},
    "cdc": {"DECODE_TARGET": 1.0},
    # 1.6 times the rows a second, as a part of the time.
    "cdc_copies": {"TARGET": 0.625},
    # Retained log and memory stay flat: a fifth of play for chance.
    "cdc_latency": {"P50_SECONDS_TARGET": 3.0, "P99_SECONDS_TARGET": 10.0, "GROWTH_TARGET": 1.2},
    "cdc_table": {"COPY_TARGET": 2.0, "APPLY_TARGET": 0.25, "PARTS_TARGET": 1.5},
    "control_plane": {"P95_MILLISECONDS_TARGET": 100.0, "IDLE_CORES_TARGET": 0.02},
    "declared": {"TARGET": 1.25},
    "domains": {"TARGET": 1.15},
    "increment": {"GROWTH_TARGET": 1.2, "DLT_TARGET": 0.5},
    "history": {"RUN_TARGET": 1.1, "TICK_CPU_SECONDS_TARGET": 0.1},
    # 10,000 events a second.
    "http": {"SECONDS_TARGET": 1.0, "P99_MILLISECONDS_TARGET": 250.0},
    "kafka": {"FILES_TARGET": 1.3, "STREAMING_TARGET": 1.0},
    "latency": {"P50_SECONDS_TARGET": 5.0, "P99_SECONDS_TARGET": 15.0},
    "search": {"CPU_TARGET": 0.25},
    "loaders": {"NOTHING_TARGET": 1.0, "UPSERT_TARGET": 1.0},
    "cold": {"CPU_TARGET": 0.35, "WALL_TARGET": 0.45},
    "warm_run": {"WALL_SECONDS_TARGET": 6.0, "CPU_SECONDS_TARGET": 10.0},
    # No growth and flat memory: a fifth of play for chance.
    "steady": {"P50_SECONDS_TARGET": 5.0, "P99_SECONDS_TARGET": 15.0, "GROWTH_TARGET": 1.2},
    "backfill": {"TARGET": 1.2},
    "sparse": {"TARGET": 2.0},
    "sql_to_delta": {"WALL_TARGET": 2.0},
    "sql_to_postgres": {"WALL_TARGET": 1.5},
    # 1.7 times the rows a second, as a part of the time.
    "cores": {"TARGET": 0.588},
    "mirror": {
        "MILLISECONDS_TARGET": 50.0,
        "GROWTH_TARGET": 1.2,
        "RECOVERY_SECONDS_TARGET": 5.0,
        "OPENING_TARGET": 0.33,
    },
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_judges_by_the_targets_agreed_on_and_no_others(name: str):
    module: ModuleType = getattr(cases, name)
    found = {constant: value for constant, value in vars(module).items() if constant.endswith("TARGET")}
    assert found == AGREED[name]
