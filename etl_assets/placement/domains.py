"""Failure domains, and in which of them a stage runs.

A domain is a storage root that fails as one (a disk, a zone, a region). A table is reached through a domain's root and
in no other way. With several domains every table is mirrored over all of them (`mirroring/`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from etl_assets.errors import DomainUnavailable
from etl_assets.mirroring.circuit_breaker import DEFAULT_TIMEOUT_SECONDS
from etl_assets.mirroring.register import REGISTERS
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domain_registry import AdminState, DomainRegistry
from etl_assets.placement.health import HealthState
from etl_assets.placement.observations import Observations
from etl_assets.placement.policy import PlacementPolicy
from etl_assets.placement.probes import Watch
from etl_assets.placement.site import Site

FIRST_GENERATION = "g000001"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDomain:
    """A folder of this machine as a storage root, and its name (`provider/region[/zone]`, or any other).

    `sites` are those of all domains, this one among them, if tables are mirrored; with one domain there are none.
    `observations` tell which of them are not to be asked now, `timeout_seconds` how long one may take to answer anything.
    With one domain `keep_log_versions` of each table's log stay; None, as for tables of users' own assets: Delta goes by age.
    `catalog` says which tables the installation has.
    """

    name: str
    root: Path
    sites: tuple[Site, ...] = ()
    observations: Observations | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    keep_log_versions: int | None = None
    catalog: Catalog = field(default_factory=Catalog, compare=False, repr=False)

    def table_path(self, table: str, generation: str = FIRST_GENERATION) -> Path:
        """Folder of a table's replica in this domain: `<root>/tables/<table>/<content generation>`."""
        return self.root / "tables" / table / generation

    def lock_path(self, table: str) -> Path:
        """File whose lock admits one writer of the table on this machine."""
        return self.root / "locks" / f"{table}.lock"

    def staging_path(self, table: str) -> Path:
        """Folder for the files of unfinished batches of the table."""
        return self.root / "staging" / table

    def progress_path(self, table: str) -> Path:
        """Folder of a table's input ledger; made from its log."""
        return self.root / "progress" / table

    def index_path(self, table: str) -> Path:
        """Folder of what was derived from a table to find its rows by; may be removed at any time."""
        return self.root / "index" / table

    def replays_path(self, stage: str) -> Path:
        """Folder of the dead letters of a stage that were handed in again; `sources.replays` fills it."""
        return self.root / "replays" / stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Says in which domain a stage runs.

    Attributes:
        domains: The configured domains whose roots are folders, in the order they are preferred in.
        sites: All configured domains, those on object stores among them.
        watch: What the home folder remembers of them, and how they are looked at.
        policy: Which of them may run which stage.
    """

    domains: tuple[FailureDomain, ...]
    sites: tuple[Site, ...]
    watch: Watch
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)

    @property
    def catalog(self) -> Catalog:
        """The tables of the installation."""
        return self.domains[0].catalog

    @property
    def memory(self) -> DomainRegistry:
        """What the home folder remembers of the domains."""
        return self.watch.memory

    def place(
        self,
        stage: PlacementClass,
        *,
        table: str | None = None,
        leader: str | None = None,
        unfit: Mapping[str, str] = MappingProxyType({}),
    ) -> FailureDomain:
        """The domain that runs `stage` now: the one that leads the stage's table already, else the first that may and can.

        Of the others a degraded one comes last. A domain that may but cannot is never replaced by one that may not. What
        was seen of a domain before does not suffice: it is asked.

        Args:
            stage: The stage.
            table: The table that it is to write, for the error.
            leader: The domain that leads the table the stage writes, so that the stage stays where it is.
            unfit: Domains that cannot run the stage for a reason that does not show in their roots, and the reason.

        Raises:
            DomainUnavailable: no allowed domain can run it.
        """
        allowed = [domain for domain in self._leaders() if self.policy.allows(stage, domain.name)]
        problems: dict[str, str] = {}
        for domain in sorted(allowed, key=lambda each: (each.name != leader, self._is_degraded(each))):
            site = self.site(domain.name)
            problem = (
                unfit.get(domain.name)
                or self._said(domain.name)
                or self.watch.make_sure(site)
                or self._left_alone(site)
                or self._take(site)
            )
            if problem is None:
                return domain
            problems[domain.name] = problem
        told = "; ".join(f"{name}: {why}" for name, why in problems.items())
        raise DomainUnavailable(
            f"no failure domain can run stage {stage}{f' of {table}' if table else ''}:"
            f" {told or 'the placement policy allows none'}",
            fix="bring one of them back (`etl-assets domains list`, `heal`), or allow another in `placement_policy`",
            table=table,
            stage=stage.value,
            domain=next(iter(problems), None),
            allowed=tuple(domain.name for domain in allowed),
        )

    def reader(self) -> FailureDomain:
        """The domain to look at tables from: the first that can be used, else the first, whose tables then say why not.

        Before any root was used there is no table, and nobody to ask.
        """
        if self.watch.is_new(self.sites):
            return replace(self.domains[0], sites=())
        return next((each for each in self.domains if self.unusable(each) is None), self.domains[0])

    def stopped(self, stage: PlacementClass) -> str | None:
        """Why a stage can run nowhere now, None if it can somewhere. Looks only; takes nothing into use."""
        allowed = [domain for domain in self._leaders() if self.policy.allows(stage, domain.name)]
        problems = {domain.name: self.problem(domain) for domain in allowed}
        if any(problem is None for problem in problems.values()):
            return None
        return "; ".join(f"{name}: {why}" for name, why in problems.items())

    def expect_allowed(self, stage: PlacementClass, domain: str, *, table: str) -> None:
        """Refuse a stage that is asked to run where it may not.

        Raises:
            DomainUnavailable: the policy does not allow it.
        """
        if self.policy.allows(stage, domain):
            return
        allowed = tuple(each.name for each in self._leaders() if self.policy.allows(stage, each.name))
        raise DomainUnavailable(
            f"the placement policy does not allow stage {stage} of {table} in {domain}",
            fix=f"run it in {' or '.join(allowed) or 'no domain: the policy allows none'}, or change `placement_policy`",
            table=table,
            stage=stage.value,
            domain=domain,
            allowed=allowed,
        )

    def problem(self, domain: FailureDomain | Site) -> str | None:
        """Why a domain cannot run a stage, or be used by one, now; None if it can."""
        return self._said(domain.name) or self.unusable(domain)

    def unusable(self, domain: FailureDomain | Site) -> str | None:
        """What is wrong with a domain's root, whatever an operator says of it."""
        site = self.site(domain.name)
        return self.watch.look(site) or self._left_alone(site)

    def _left_alone(self, site: Site) -> str | None:
        """Why a root cannot be the only one: commits to tables that others vote on would be lost to them."""
        if len(self.sites) > 1 or not (Path(site.root) / REGISTERS).is_dir():
            return None
        return (
            f"its tables are mirrored over several failure domains, and the platform file names one ({site.root}):"
            " name the others again"
        )

    def heal(self, name: str, *, new_root: bool = False) -> str | None:
        """Take a domain back into use, and look at it with fresh eyes; with `new_root` its old root is given up, and the new one
        gets its mark: without it nothing is built there.

        Returns:
            Why the new root cannot be used, None if it can.
        """
        if new_root:
            self.memory.forget(name)
        self.watch.observations.forget(name)
        self.memory.set_standing(name, AdminState.IN_USE)
        return self.watch.take(self.site(name)) if new_root else None

    def site(self, name: str) -> Site:
        """A configured domain, wherever its root is."""
        return next(site for site in self.sites if site.name == name)

    def _said(self, name: str) -> str | None:
        standing = self.memory.of(name).standing
        return None if standing is AdminState.IN_USE else f"{standing.value} by an operator"

    def _is_degraded(self, domain: FailureDomain) -> bool:
        return self.watch.observations.of(domain.name).state is HealthState.DEGRADED

    def _take(self, site: Site) -> str | None:
        """Take the root into use, and those of the other domains with it: a table is made in all of them.

        Returns:
            Why the domain's own root cannot be taken; that of another one stops only what needs it.
        """
        self.watch.take_over(self.sites)
        problems = {each.name: self.watch.take(each) for each in self.sites}
        return problems[site.name]

    def named(self, name: str) -> FailureDomain | None:
        """A domain with a folder, by its name."""
        return next((domain for domain in self.domains if domain.name == name), None)

    def _leaders(self) -> Iterator[FailureDomain]:
        """The domains whose replicas may be written first."""
        for domain in self.domains:
            if self.site(domain.name).may_lead:
                yield domain
