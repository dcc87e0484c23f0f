"""Access to the roots of failure domains: with a time limit, and not while a domain is unavailable.

Does not belong here: the observed health of a domain (`observations.py`), and how it is probed (`probes.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from etl_assets.mirroring.stores.guarded_store import GuardedStore
from etl_assets.mirroring.stores.opening import open_store
from etl_assets.mirroring.stores.store import Store
from etl_assets.placement.domain_registry import MARKER
from etl_assets.placement.health import ProbeResult
from etl_assets.placement.observations import Observations
from etl_assets.placement.site import Site


@dataclass(frozen=True, slots=True)
class DomainBreaker:
    """Circuit breaker of a domain, shared by the processes of this machine."""

    domain: str
    observations: Observations

    def shut(self) -> str | None:
        """Return why the domain must not be asked now, or None if it may be."""
        return self.observations.of(self.domain).shut(time.monotonic())

    def hangs(self, began: float, problem: str) -> None:
        """Report to the other processes that the domain hangs.

        Args:
            began: When the call began, on the monotonic clock.
            problem: What was wrong.
        """
        sighting = ProbeResult(began=began, ended=time.monotonic(), problem=problem, hangs=True)
        self.observations.add(self.domain, sighting)


def opener(
    sites: Iterable[Site], observations: Observations | None, timeout_seconds: float
) -> Callable[[str], Store]:
    """Return a function that opens a root as a guarded store.

    Roots of the given sites share the circuit breaker of their domain, if there are observations. Any other
    root has only the time limit.
    """
    names = {site.root: site.name for site in sites}

    def opened(root: str) -> Store:
        name, store = names.get(root), open_store(root)
        breaker = None if observations is None or name is None else DomainBreaker(name, observations)
        return GuardedStore(store, seconds=timeout_seconds, small_key=MARKER, breaker=breaker)

    return opened
