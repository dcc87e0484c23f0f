"""The cases, one a module, each with a function `run(options)` that measures and returns figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.cases import bulk, cores, domains, history, mirror
from benchmarks.options import Options
from benchmarks.report import Figure

CASES: Mapping[str, Callable[[Options], list[Figure]]] = {
    "bulk": bulk.run,
    "cores": cores.run,
    "domains": domains.run,
    "history": history.run,
    "mirror": mirror.run,
}
