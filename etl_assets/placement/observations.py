"""What the processes of this machine saw of the failure domains, in a file that they share: `<home>/health.json`.

It is observed, not agreed: it may be lost or removed at any time, and what another boot or machine wrote is forgotten,
because its times are not this one's. What must not be forgotten is in `domain_registry.py`.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from etl_assets.placement.health import MAX_PAUSE_SECONDS, Health, HealthState, ProbeResult

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOCK_ATTEMPTS, _LOCK_PAUSE_SECONDS = 100, 0.01


@dataclass(frozen=True, slots=True)
class Observations:
    """The file. Written by whoever looks at a domain; a write that cannot be made is left out."""

    file: Path

    def of(self, domain: str) -> Health:
        """The health of a domain; of one that was never looked at nothing bad is known."""
        try:
            stat = self.file.stat()
            known = _parsed(self.file, (stat.st_ino, stat.st_mtime_ns, stat.st_size))
        except OSError:
            return Health()
        health = known.get(domain, Health())
        # Without boot ids a file of another boot shows by times that lie ahead.
        now = time.monotonic()
        ahead = health.seen_at > now or health.next_probe > now + 2 * MAX_PAUSE_SECONDS
        return Health() if ahead else health

    def add(self, domain: str, sighting: ProbeResult) -> Health:
        """Add a sighting; returns the health with it."""
        return self._change(domain, lambda health: health.after(sighting))

    def claim(self, domain: str, until: float) -> bool:
        """Ask to be the one that probes a domain now. False: it is not due, or another process does."""
        claims: list[bool] = []

        def claimed(health: Health) -> Health:
            claims.append(health.is_due(time.monotonic()))
            return health.claimed(until) if claims[-1] else health

        self._change(domain, claimed)
        return claims[-1]

    def forget(self, domain: str) -> None:
        """Begin anew with a domain, for instance because an operator mended it."""
        self._change(domain, lambda _: Health())

    def _change(self, domain: str, change: Callable[[Health], Health]) -> Health:
        try:
            with self._alone():
                health = change(self.of(domain))
                self._write(domain, health)
                return health
        except OSError:
            return change(self.of(domain))

    @contextmanager
    def _alone(self) -> Generator[None]:
        """One writer at a time. A process that was stopped inside must not stop the others: they go on without writing."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.with_suffix(".lock").open("a") as lock:
            for attempt in range(_LOCK_ATTEMPTS):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if attempt == _LOCK_ATTEMPTS - 1:
                        raise
                    time.sleep(_LOCK_PAUSE_SECONDS)
            yield

    def _write(self, domain: str, health: Health) -> None:
        known: dict[str, Health] = {}
        with suppress(OSError):
            known.update(_load(self.file))
        known[domain] = health
        domains = {name: dataclasses.asdict(each) for name, each in known.items()}
        # Not fsynced: it means nothing after the next boot.
        temporary = self.file.with_name(f".{self.file.name}.{uuid.uuid4().hex}")
        try:
            temporary.write_text(
                json.dumps({"boot": boot_id(), "domains": domains}, indent=2) + "\n", "utf-8"
            )
            temporary.replace(self.file)
        finally:
            temporary.unlink(missing_ok=True)


def _load(file: Path) -> Mapping[str, Health]:
    try:
        content = json.loads(file.read_text("utf-8"))
        if content["boot"] != boot_id():
            return {}
        return {name: _decoded(each) for name, each in content["domains"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _decoded(found: Mapping[str, Any]) -> Health:
    return Health(
        state=HealthState(found["state"]),
        why=found["why"],
        failures=int(found["failures"]),
        successes=int(found["successes"]),
        seen_at=float(found["seen_at"]),
        next_probe=float(found["next_probe"]),
    )


@lru_cache(maxsize=16)
def _parsed(file: Path, _stamp: tuple[int, int, int]) -> Mapping[str, Health]:
    """The content as read. A write makes a new file, so that the stamp tells; stores ask before every operation."""
    return _load(file)


@cache
def boot_id() -> str:
    """What tells this boot of this machine from any other."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return os.uname().nodename
