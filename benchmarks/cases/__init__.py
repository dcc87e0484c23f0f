"""The cases, one a module, each with a function `run(options)` that measures and returns figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.cases import (
    backfill,
    bulk,
    captures_idle,
    cdc,
    cdc_copies,
    cdc_latency,
    cdc_table,
    cold,
    control_plane,
    cores,
    declared,
    domains,
    history,
    http,
    increment,
    kafka,
    latency,
    loaders,
    mirror,
    search,
    sparse,
    sql_to_delta,
    sql_to_postgres,
    steady,
    warm_run,
)
from benchmarks.options import Options
from benchmarks.report import Figure

CASES: Mapping[str, Callable[[Options], list[Figure]]] = {
    "bulk": bulk.run,
    "captures_idle": captures_idle.run,
    "cdc": cdc.run,
    "cdc_copies": cdc_copies.run,
    "cdc_latency": cdc_latency.run,
    "cdc_table": cdc_table.run,
    "cold": cold.run,
    "loaders": loaders.run,
    "increment": increment.run,
    "backfill": backfill.run,
    "control_plane": control_plane.run,
    "cores": cores.run,
    "declared": declared.run,
    "domains": domains.run,
    "history": history.run,
    "http": http.run,
    "kafka": kafka.run,
    "latency": latency.run,
    "mirror": mirror.run,
    "search": search.run,
    "sparse": sparse.run,
    "sql_to_delta": sql_to_delta.run,
    "sql_to_postgres": sql_to_postgres.run,
    "steady": steady.run,
    "warm_run": warm_run.run,
}
