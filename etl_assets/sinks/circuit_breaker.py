"""The circuit breaker of a sink: a target that is down is left alone for a while, and then tried once.

Belongs here: the states, and the file that shows them to other processes. Does not belong here: for how long
a target is left alone (`worker/pauses.py`, by the error policy), and calls to roots that may hang
(`mirroring/stores/circuit_breaker.py`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from etl_assets.delta.log.durability import write_durably

_FILE = "circuit_breakers.json"


class CircuitState(StrEnum):
    """State of a circuit.

    CLOSED: deliveries are made, each with the repetitions of `runs.max_retries`.
    OPEN: a delivery has failed after its repetitions; none is made until the backoff ends.
    HALF_OPEN: the backoff has ended; one delivery is tried, without repetitions.
    """

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circuit:
    """Circuit of a sink whose last delivery failed. A sink without one is closed.

    Attributes:
        opened_at: Time of the first of its failures in a row, in seconds since 1970.
        failures: Failed deliveries since then.
        failed_at: Time of the last one.
        pause_seconds: Backoff after it.
        error: The last error, for people.
    """

    opened_at: float
    failures: int
    failed_at: float
    pause_seconds: float
    error: str

    def state(self, now: float) -> CircuitState:
        """Return the state. A clock that was set back ends the backoff."""
        return CircuitState.OPEN if 0 <= now - self.failed_at < self.pause_seconds else CircuitState.HALF_OPEN

    @property
    def first_line(self) -> str:
        """The last error in one line."""
        return self.error.partition("\n")[0]

    def sentence(self, now: float) -> str:
        """Return since when it is open, when the next attempt is made, and the last error."""
        rest = self.failed_at + self.pause_seconds - now
        soon = "now" if self.state(now) is CircuitState.HALF_OPEN else f"in {rest:.0f} s"
        since = dt.datetime.fromtimestamp(self.opened_at, dt.UTC)
        return (
            f"its circuit breaker is open since {since:%Y-%m-%d %H:%M:%S} UTC after {self.failures} failed"
            f" deliveries, and a worker tries the next one {soon}; the last error: {self.first_line}"
        )


def after_failure(circuit: Circuit | None, error: str, *, pause_seconds: float, now: float) -> Circuit:
    """Return the circuit after a failed delivery: open."""
    return Circuit(
        opened_at=now if circuit is None else circuit.opened_at,
        failures=1 if circuit is None else circuit.failures + 1,
        failed_at=now,
        pause_seconds=pause_seconds,
        error=error,
    )


def read_circuits(home: Path) -> dict[str, Circuit]:
    """Return the circuits that are not closed, by the table of deliveries, as a worker wrote them last."""
    try:
        content = json.loads((home / _FILE).read_text("utf-8"))
        return {name: Circuit(**circuit) for name, circuit in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_circuits(home: Path, circuits: Mapping[str, Circuit]) -> None:
    """Replace the file. Only the worker writes it."""
    content = {name: dataclasses.asdict(circuit) for name, circuit in circuits.items()}
    write_durably(home / _FILE, json.dumps(content).encode())
