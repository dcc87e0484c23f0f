"""Where every failure domain and every mirrored table stands: health, leaders, how far replicas are behind. No JVM."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.delta.replication_status import ReplicationStatus
from etl_assets.errors import MirrorError
from etl_assets.placement.domain_registry import AdminState
from etl_assets.placement.health import HealthState
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import Placement
    from etl_assets.placement.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainState:
    """One domain as it is now.

    Attributes:
        name: Its name.
        root: Its root.
        role: voter, witness or learner.
        health: `healthy`, `degraded`, `unavailable`, or what an operator said: `drained`, `failed`.
        why: What made it so; None for a healthy domain.
        problem: Why no stage can be placed there, None if nothing stands against it.
        leads: Tables it leads.
        behind: For each table how many acknowledged versions its replica lacks; None where it does not answer.
        whole: Tables whose newest acknowledged version it holds with all its rows.
    """

    name: str
    root: str
    role: str
    health: str
    why: str | None
    problem: str | None
    leads: tuple[str, ...]
    behind: Mapping[str, int | None]
    whole: tuple[str, ...]

    @property
    def told(self) -> str:
        """Health and what is behind it, in words."""
        why = self.problem or self.why
        return f"{self.health}: {why}" if why else self.health

    def as_json(self) -> dict[str, Any]:
        """The state as JSON has it."""
        lists = {"leads": list(self.leads), "whole": list(self.whole)}
        return {**dataclasses.asdict(self), **lists, "behind": dict(self.behind)}


def replication_statuses(placement: Placement) -> dict[str, ReplicationStatus]:
    """Every mirrored table of the platform that exists; with a problem instead of figures where too few domains answer."""
    found: dict[str, ReplicationStatus] = {}
    for table in placement.catalog.names:
        mirrored = platform_table(table, placement.reader()).replication
        if mirrored is None:
            continue
        try:
            standing = mirrored.standing()
        except MirrorError as error:
            standing = ReplicationStatus.unknown(error.message)
        if standing is not None:
            found[table] = standing
    return found


def domain_states(
    placement: Placement, tables: Mapping[str, ReplicationStatus] | None = None
) -> list[DomainState]:
    """Every configured domain, in the order of the platform file, then those that hold replicas and are not in it.

    Args:
        placement: The domains.
        tables: Where the tables stand, if that is known already.
    """
    tables = replication_statuses(placement) if tables is None else tables
    configured = [site.name for site in placement.sites]
    strays = dict.fromkeys(
        name for standing in tables.values() for name in standing.roles if name not in configured
    )
    return [
        *(_state(placement, site, tables) for site in placement.sites),
        *(_stray(name, tables) for name in strays),
    ]


def _state(placement: Placement, site: Site, tables: Mapping[str, ReplicationStatus]) -> DomainState:
    problem = placement.problem(site)
    standing, health = placement.memory.of(site.name).standing, placement.watch.observations.of(site.name)
    state = health.state
    if problem is not None and state is HealthState.HEALTHY:
        # Seen just now, and not yet by a probe.
        state = HealthState.DEGRADED
    return DomainState(
        name=site.name,
        root=site.root,
        role=site.role.value,
        health=state.value if standing is AdminState.IN_USE else standing.value,
        why=health.why,
        problem=problem,
        **_replicas(site.name, tables),
    )


def _stray(name: str, tables: Mapping[str, ReplicationStatus]) -> DomainState:
    roles = dict.fromkeys(
        standing.roles[name].value for standing in tables.values() if name in standing.roles
    )
    return DomainState(
        name=name,
        root="",
        role=", ".join(roles),
        health="not in the platform file",
        why=None,
        problem=f"put it back there, or `etl-assets domains remove {name}`",
        **_replicas(name, tables),
    )


def _replicas(domain: str, tables: Mapping[str, ReplicationStatus]) -> dict[str, Any]:
    """What a domain has of the tables; of one that it is to join yet it does not count as behind."""
    return {
        "leads": tuple(name for name, standing in tables.items() if standing.leader == domain),
        "behind": {
            name: standing.behind.get(domain)
            for name, standing in tables.items()
            if domain in standing.roles or standing.problem is not None
        },
        "whole": tuple(name for name, standing in tables.items() if domain in standing.whole),
    }


def one_loss(states: Sequence[DomainState]) -> str | None:
    """What losing any one domain now would lose, in words; None if nothing.

    An acknowledged version is safe from one loss while two replicas with data have all of it.
    """
    if len(states) == 1:
        return "There is one failure domain: losing its disk loses everything."
    for name in dict.fromkeys(name for state in states for name in state.behind):
        whole = [state.name for state in states if name in state.whole]
        if not whole:
            return f"The newest version of {name} is in no domain that answers: nothing can be told of it."
        if len(whole) == 1:
            return f"The newest version of {name} is whole only in {whole[0]}: losing that domain would lose data."
    return None
