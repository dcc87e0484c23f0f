"""Where every failure domain stands: its health, what it leads, how far its replicas are behind. No JVM."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.tables import ALL_TABLES
from etl_assets.delta.replication import TableStanding
from etl_assets.errors import MirrorError
from etl_assets.placement.health import HealthState
from etl_assets.placement.memory import Standing
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
    """

    name: str
    root: str
    role: str
    health: str
    why: str | None
    problem: str | None
    leads: tuple[str, ...]
    behind: Mapping[str, int | None]

    @property
    def told(self) -> str:
        """Health and what is behind it, in words."""
        why = self.problem or self.why
        return f"{self.health}: {why}" if why else self.health

    def as_json(self) -> dict[str, Any]:
        """The state as JSON has it."""
        return {**dataclasses.asdict(self), "leads": list(self.leads), "behind": dict(self.behind)}


def domain_states(placement: Placement) -> list[DomainState]:
    """Every configured domain, in the order of the platform file."""
    tables = {name: standing for name, standing in _tables(placement).items() if standing is not None}
    return [_state(placement, site, tables) for site in placement.sites]


def _state(placement: Placement, site: Site, tables: Mapping[str, TableStanding]) -> DomainState:
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
        health=state.value if standing is Standing.IN_USE else standing.value,
        why=health.why,
        problem=problem,
        leads=tuple(name for name, standing in tables.items() if standing.leader == site.name),
        behind={name: standing.behind.get(site.name) for name, standing in tables.items()},
    )


def one_loss(states: Sequence[DomainState]) -> str | None:
    """What losing any one domain now would lose, in words; None if nothing.

    An acknowledged version is safe from one loss while two replicas with data have all of it.
    """
    if len(states) == 1:
        return "There is one failure domain: losing its disk loses everything."
    names = [name for state in states for name in state.behind]
    for name in dict.fromkeys(names):
        whole = [s.name for s in states if s.role != "witness" and s.behind.get(name) == 0]
        if len(whole) < 2:
            where = f"only in {whole[0]}" if whole else "in no single domain"
            return f"The newest version of {name} is whole {where}: losing that domain would lose data."
    return None


def _tables(placement: Placement) -> dict[str, TableStanding | None]:
    found: dict[str, TableStanding | None] = {}
    for contract in ALL_TABLES:
        mirrored = platform_table(contract.name, placement.reader()).replication
        if mirrored is None:
            continue
        try:
            found[contract.name] = mirrored.standing()
        except MirrorError as error:
            found[contract.name] = TableStanding.unknown(error.message)
    return found
