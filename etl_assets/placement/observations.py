"""Observed health of the failure domains, shared by the processes of this machine: `<home>/health.json`.

Health is observed and not agreed on, so the file may be lost or removed at any time. Content from another
boot or machine is ignored, because its times are of another clock. State that must not be lost is in
`domain_registry.py`.
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
    """The health file. Every process that checks a domain writes it; a write that fails is skipped."""

    file: Path

    def of(self, domain: str) -> Health:
        """Return the health of a domain; a domain that was never checked counts as healthy."""
        try:
            stat = self.file.stat()
            known = _parsed(self.file, (stat.st_ino, stat.st_mtime_ns, stat.st_size))
        except OSError:
            return Health()
        health = known.get(domain, Health())
        # Without boot ids a file of another boot is recognized by times in the future.
        now = time.monotonic()
        ahead = health.seen_at > now or health.next_probe > now + 2 * MAX_PAUSE_SECONDS
        return Health() if ahead else health

    def add(self, domain: str, sighting: ProbeResult) -> Health:
        """Add a probe result, and return the health after it."""
        return self._change(domain, lambda health: health.after(sighting))

    def claim(self, domain: str, until: float) -> bool:
        """Claim the next probe of a domain for this process.

        Args:
            domain: The domain.
            until: No other process probes the domain before this time.

        Returns:
            False if no probe is due, or another process has claimed it.
        """
        claims: list[bool] = []

        def claimed(health: Health) -> Health:
            claims.append(health.is_due(time.monotonic()))
            return health.claimed(until) if claims[-1] else health

        self._change(domain, claimed)
        return claims[-1]

    def forget(self, domain: str) -> None:
        """Reset a domain to healthy, for instance because an operator has repaired it."""
        self._change(domain, lambda _: Health())

    def _change(self, domain: str, change: Callable[[Health], Health]) -> Health:
        """Change the health of a domain under the lock, and return it; without the lock it is not stored."""
        try:
            with self._alone():
                health = change(self.of(domain))
                self._write(domain, health)
                return health
        except OSError:
            return change(self.of(domain))

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Hold the lock of the health file.

        A process that is suspended with the lock must not block the others: they continue without writing.

        Raises:
            BlockingIOError: the lock is still held by another process after about a second.
        """
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
        # Not fsynced: the content has no meaning after the next boot.
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
    """Return the file's content, cached because stores ask before every operation.

    Each write makes a new file, so `_stamp` (inode, time and size) changes with the content.
    """
    return _load(file)


@cache
def boot_id() -> str:
    """Return an id of this boot of this machine; the host name where the kernel has no boot id."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return os.uname().nodename
