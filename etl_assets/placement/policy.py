"""The placement policy: which failure domains may run which stage. An authorization, not a list of fallbacks.

Belongs here: the decision, as a pure function of names. Does not belong here: whether a domain is healthy
(`health.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from etl_assets.pipelines.placement_class import PlacementClass

ANYWHERE = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPolicy:
    """The domains that may run each stage: by exact name, by an outer name, or `*` for all.

    An outer name allows everything in it: `aws` all its regions and zones, `aws/us-east-1` all zones of that
    region. A stage that is not named may run in any domain.
    """

    allowed: Mapping[PlacementClass, Collection[str]] = field(default_factory=lambda: MappingProxyType({}))

    def allows(self, stage: PlacementClass, domain: str) -> bool:
        """Return whether a domain may run a stage."""
        return any(covers(name, domain) for name in self.allowed.get(stage, ANYWHERE))


def covers(outer: str, domain: str) -> bool:
    """Return whether a name in a policy, or of an outage, includes a domain."""
    return outer in ("*", domain) or domain.startswith(f"{outer}/")
