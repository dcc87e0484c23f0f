"""How the roots of failure domains are opened for the tables: with a time limit, and not while their domain is known to
be unavailable.

Does not belong here: what is known of a domain (`observations.py`), and how it is looked at (`probes.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from etl_assets.mirroring.guarded_store import GuardedStore
from etl_assets.mirroring.opening import open_store
from etl_assets.mirroring.stores import Store
from etl_assets.placement.domain_registry import MARKER
from etl_assets.placement.health import ProbeResult
from etl_assets.placement.observations import Observations
from etl_assets.placement.site import Site


@dataclass(frozen=True, slots=True)
class DomainBreaker:
    """The breaker of a domain, shared by the processes of this machine."""

    domain: str
    observations: Observations

    def shut(self) -> str | None:
        """Why the domain is not to be asked now, None if it may be."""
        return self.observations.of(self.domain).shut(time.monotonic())

    def hangs(self, began: float, problem: str) -> None:
        """Let the others know that the domain hangs."""
        sighting = ProbeResult(began=began, ended=time.monotonic(), problem=problem, hangs=True)
        self.observations.add(self.domain, sighting)


def opener(
    sites: Iterable[Site], observations: Observations | None, timeout_seconds: float
) -> Callable[[str], Store]:
    """Opens the roots of some domains, and any other root as it is."""
    names = {site.root: site.name for site in sites}

    def opened(root: str) -> Store:
        name, store = names.get(root), open_store(root)
        breaker = None if observations is None or name is None else DomainBreaker(name, observations)
        return GuardedStore(store, seconds=timeout_seconds, small_key=MARKER, breaker=breaker)

    return opened
