"""Failure domains, and the placement of stages in them.

A domain is a storage root that fails as one: a disk, a zone, a region. Tables are accessed only through the
root of a domain. With several domains every table is mirrored over all of them (`mirroring/`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from etl_assets.errors import DomainUnavailable
from etl_assets.mirroring.protocol.register import REGISTERS
from etl_assets.mirroring.stores.circuit_breaker import DEFAULT_TIMEOUT_SECONDS
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
    """A failure domain whose root is a folder of this machine.

    Attributes:
        name: Name of the domain: `provider/region[/zone]`, or any other.
        root: The root folder.
        sites: The sites of all domains, this one included, if tables are mirrored; empty with one domain.
        observations: Health of the domains; it says which of them must not be asked now.
        timeout_seconds: How long a root may take to answer anything.
        keep_log_versions: With one domain, the number of versions of each table's log to keep. None, as for
            the tables of users' own assets: Delta removes log entries by age.
        catalog: The tables of the installation.
    """

    name: str
    root: Path
    sites: tuple[Site, ...] = ()
    observations: Observations | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    keep_log_versions: int | None = None
    catalog: Catalog = field(default_factory=Catalog, compare=False, repr=False)

    def table_path(self, table: str, generation: str = FIRST_GENERATION) -> Path:
        """Return the folder of a table's replica: `<root>/tables/<table>/<content generation>`."""
        return self.root.joinpath("tables", table, generation)

    def lock_path(self, table: str) -> Path:
        """Return the file whose lock admits one writer of the table on this machine."""
        return self.root / "locks" / f"{table}.lock"

    def staging_path(self, table: str) -> Path:
        """Return the folder for the files of unfinished batches of the table."""
        return self.root / "staging" / table

    def progress_path(self, table: str) -> Path:
        """Return the folder of a table's input ledger, which is derived from the table's log."""
        return self.root / "progress" / table

    def index_path(self, table: str) -> Path:
        """Return the folder of the index derived from a table's rows; it may be removed at any time."""
        return self.root / "index" / table

    def replays_path(self, stage: str) -> Path:
        """Return the folder of a stage's dead letters submitted for replay; `sources.replays` fills it."""
        return self.root / "replays" / stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Placement of stages: decides in which domain a stage runs.

    Attributes:
        domains: The configured domains whose roots are folders, in order of preference.
        sites: All configured domains, those on object stores included.
        watch: Probes of the domains, with their registry and their observed health.
        policy: The domains that may run each stage.
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
        """The home folder's registry of the domains."""
        return self.watch.memory

    def place(
        self,
        stage: PlacementClass,
        *,
        table: str | None = None,
        leader: str | None = None,
        unfit: Mapping[str, str] = MappingProxyType({}),
    ) -> FailureDomain:
        """Return the domain that runs `stage` now, after taking its root into use if it is new.

        The leader of the stage's table is preferred, then the other domains in order of preference, degraded
        ones last. A domain that the policy does not allow is never chosen, even if no allowed domain can run
        the stage. Past observations are not enough: a domain is checked before it is chosen.

        Args:
            stage: The stage.
            table: The table that the stage writes, for the error message.
            leader: The domain that leads this table, so that the stage stays there.
            unfit: Domains that cannot run the stage for a reason that their roots do not show, each with the
                reason.

        Raises:
            DomainUnavailable: no allowed domain can run the stage.
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
            fix="bring one of them back (`etl-assets domains list`, `heal`), or allow another in"
            " `placement_policy`",
            table=table,
            stage=stage.value,
            domain=next(iter(problems), None),
            allowed=tuple(domain.name for domain in allowed),
        )

    def reader(self) -> FailureDomain:
        """Return the domain to read tables from: the first usable one, else the first one.

        If no domain is usable, the tables of the first one report why.

        Before any root was used there are no tables and no replicas. Then the first domain is returned
        without sites.
        """
        if self.watch.is_new(self.sites):
            return replace(self.domains[0], sites=())
        return next((each for each in self.domains if self.unusable(each) is None), self.domains[0])

    def stopped(self, stage: PlacementClass) -> str | None:
        """Return why no domain can run a stage now, or None if one can. Takes no root into use."""
        allowed = [domain for domain in self._leaders() if self.policy.allows(stage, domain.name)]
        problems = {domain.name: self.problem(domain) for domain in allowed}
        if any(problem is None for problem in problems.values()):
            return None
        return "; ".join(f"{name}: {why}" for name, why in problems.items())

    def expect_allowed(self, stage: PlacementClass, domain: str, *, table: str) -> None:
        """Refuse to run a stage in a domain that the policy does not allow.

        Raises:
            DomainUnavailable: the policy does not allow the domain.
        """
        if self.policy.allows(stage, domain):
            return
        allowed = tuple(each.name for each in self._leaders() if self.policy.allows(stage, each.name))
        raise DomainUnavailable(
            f"the placement policy does not allow stage {stage} of {table} in {domain}",
            fix=f"run it in {' or '.join(allowed) or 'no domain: the policy allows none'}, or change"
            " `placement_policy`",
            table=table,
            stage=stage.value,
            domain=domain,
            allowed=allowed,
        )

    def problem(self, domain: FailureDomain | Site) -> str | None:
        """Return why a domain cannot run or serve a stage now, or None if it can."""
        return self._said(domain.name) or self.unusable(domain)

    def unusable(self, domain: FailureDomain | Site) -> str | None:
        """Return what is wrong with a domain's root, or None; ignores what an operator set."""
        site = self.site(domain.name)
        return self.watch.look(site) or self._left_alone(site)

    def _left_alone(self, site: Site) -> str | None:
        """Return why a root cannot be the only configured one, or None if it can.

        If its tables are mirrored, commits made there alone would be missing in the other domains.
        """
        if len(self.sites) > 1 or not (Path(site.root) / REGISTERS).is_dir():
            return None
        return (
            "its tables are mirrored over several failure domains, and the platform file names one"
            f" ({site.root}): name the others again"
        )

    def heal(self, name: str, *, new_root: bool = False) -> str | None:
        """Take a domain back into use, and forget its observed health.

        Args:
            name: The domain.
            new_root: Give up the domain's old root, and mark the present one as its own. Nothing is built on
                a root without the mark.

        Returns:
            Why the new root cannot be used; None if it can, or without `new_root`.
        """
        if new_root:
            self.memory.forget(name)
        self.watch.observations.forget(name)
        self.memory.set_standing(name, AdminState.IN_USE)
        return self.watch.take(self.site(name)) if new_root else None

    def site(self, name: str) -> Site:
        """Return the configured domain with this name, on a folder or an object store."""
        return next(site for site in self.sites if site.name == name)

    def _said(self, name: str) -> str | None:
        """Return why an operator keeps stages out of a domain, or None if the domain is in use."""
        standing = self.memory.of(name).standing
        return None if standing is AdminState.IN_USE else f"{standing.value} by an operator"

    def _is_degraded(self, domain: FailureDomain) -> bool:
        return self.watch.observations.of(domain.name).state is HealthState.DEGRADED

    def _take(self, site: Site) -> str | None:
        """Take the roots of all domains into use, as a table is created in all of them.

        Returns:
            Why this domain's root cannot be taken into use, or None. Failures of other roots are ignored
            here: they stop only operations that need them.
        """
        self.watch.take_over(self.sites)
        problems = {each.name: self.watch.take(each) for each in self.sites}
        return problems[site.name]

    def named(self, name: str) -> FailureDomain | None:
        """Return the domain with this name if its root is a folder, else None."""
        return next((domain for domain in self.domains if domain.name == name), None)

    def _leaders(self) -> Iterator[FailureDomain]:
        """Yield the domains that may lead a table."""
        for domain in self.domains:
            if self.site(domain.name).may_lead:
                yield domain
