"""Marks that a script sets on its way: wall and CPU time when it got there, and figures it wants to tell."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import tree_cpu_seconds

MARKS_FILE = "ETL_ASSETS_BENCH_MARKS"
"""Variable by which `measure` tells a script where its marks go."""
SERVERS = "ETL_ASSETS_BENCH_SERVERS"
"""Variable with the numbers of processes that work for a script and are none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One mark.

    `clock` is the machine's monotonic time, `cpu_seconds` those of the script's processes and servers so far.
    """

    name: str
    clock: float
    cpu_seconds: float
    figures: Mapping[str, Any] = field(default_factory=dict)


def mark(name: str, **figures: Any) -> None:
    """Set a mark; in a script that nobody measures this does nothing."""
    if (file := os.environ.get(MARKS_FILE)) is None:
        return
    servers = map(int, os.environ.get(SERVERS, "").split())
    line = {
        "name": name,
        "clock": time.monotonic(),
        "cpu_seconds": sum(map(tree_cpu_seconds, [os.getpid(), *servers])),
        "figures": figures,
    }
    with Path(file).open("a", encoding="utf-8") as marks:
        marks.write(json.dumps(line) + "\n")


def read_marks(file: Path) -> dict[str, Mark]:
    """The marks a script has set, by name, in order."""
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return {found.name: found for found in (Mark(**json.loads(line)) for line in lines)}
