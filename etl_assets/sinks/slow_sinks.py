"""Sinks with an alert about a delivery that takes long: a worker that starts again does not repeat it.

Belongs here: the file. Does not belong here: how long is too long (`worker/deliveries.py`).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from etl_assets.delta.log.durability import write_durably

_FILE = "slow_sinks.json"


def read_slow_sinks(home: Path) -> frozenset[str]:
    """Return the tables of deliveries of the slow sinks, as a worker wrote them last."""
    try:
        return frozenset(
            each for each in json.loads((home / _FILE).read_text("utf-8")) if isinstance(each, str)
        )
    except (OSError, ValueError, TypeError):
        return frozenset()


def write_slow_sinks(home: Path, tables: Collection[str]) -> None:
    """Replace the file. Only the worker writes it."""
    write_durably(home / _FILE, json.dumps(sorted(tables)).encode())
