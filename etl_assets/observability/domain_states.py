"""State of failure domains and mirrored tables: health, leaders, lag of the replicas. No JVM."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.delta.replicated.replication_status import ReplicationStatus
from etl_assets.errors import MirrorError
from etl_assets.placement.domain_registry import AdminState
from etl_assets.placement.health import HealthState
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import Placement
    from etl_assets.placement.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainState:
    """State of one domain.

    Attributes:
        name: Name of the domain.
        root: Root folder or address.
        role: voter, witness or learner.
        health: `healthy`, `degraded` or `unavailable`; or what an operator set: `drained`, `failed`.
        why: Reason for the health; None for a healthy domain.
        problem: Why no stage can be placed there; None if stages can.
        leads: Tables that the domain leads.
        behind: Number of acknowledged versions that each table's replica lacks; None if the replica does not
            answer.
        whole: Tables whose newest acknowledged version the domain holds with all rows.
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
        """Health and its reason, in words."""
        why = self.problem or self.why
        return f"{self.health}: {why}" if why else self.health

    def as_json(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        lists = {"leads": list(self.leads), "whole": list(self.whole)}
        return {**dataclasses.asdict(self), **lists, "behind": dict(self.behind)}


def replication_statuses(placement: Placement) -> dict[str, ReplicationStatus]:
    """Return the replication status of every mirrored table that exists.

    If too few domains answer for a table, its status holds a problem instead of numbers.
    """
    found: dict[str, ReplicationStatus] = {}
    for table in placement.catalog.every_name():
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
    """Return the state of each domain.

    Configured domains come first, in the platform file's order; then domains that hold replicas but are not
    configured.

    Args:
        placement: The domains.
        tables: Replication statuses by table, if already known.
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
        # The problem was found just now, before a probe saw it.
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
    """Return the table fields of a domain's state. A domain that has yet to join a table does not count as
    behind.
    """
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
    """Describe what would be lost if any one domain were lost now; None if nothing would.

    An acknowledged version survives one loss while two replicas with data hold all of it.
    """
    if len(states) == 1:
        return "There is one failure domain: losing its disk loses everything."
    for name in dict.fromkeys(name for state in states for name in state.behind):
        whole = [state.name for state in states if name in state.whole]
        if not whole:
            return f"The newest version of {name} is in no domain that answers: nothing can be told of it."
        if len(whole) == 1:
            return (
                f"The newest version of {name} is whole only in {whole[0]}: losing that domain would lose"
                " data."
            )
    return None
