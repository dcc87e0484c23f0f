"""Failure domains, and in which of them a stage runs.

A domain is a storage root that fails as one (a disk, a zone, a region). A table is reached through a domain's root and
in no other way. With several domains every table is mirrored over all of them (`mirroring/`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from etl_assets.errors import DomainUnavailable
from etl_assets.mirroring.locator import Role
from etl_assets.placement.memory import DomainsMemory, Standing
from etl_assets.placement.policy import PlacementPolicy, Stage

FIRST_GENERATION = "g000001"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a domain keeps its replicas, and what they are for."""

    name: str
    root: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDomain:
    """A storage root and its name (`provider/region[/zone]`, or any name for a single machine).

    `sites` are those of all domains, this one among them, if tables are mirrored; with one domain there are none.
    """

    name: str
    root: Path
    sites: tuple[Site, ...] = ()

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
        """Folder of a table's planned batches and input ledger."""
        return self.root / "progress" / table

    def index_path(self, table: str) -> Path:
        """Folder of what was derived from a table to find its rows by; may be removed at any time."""
        return self.root / "index" / table

    def replays_path(self, stage: str) -> Path:
        """Folder of the dead letters of a stage that were handed in again."""
        return self.root / "replays" / stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Says in which domain a stage runs.

    Attributes:
        domains: The configured domains, in the order they are preferred in.
        policy: Which of them may run which stage.
        memory: What the home folder remembers of them.
    """

    domains: tuple[FailureDomain, ...]
    memory: DomainsMemory
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)

    def place(self, stage: Stage, *, leader: str | None = None) -> FailureDomain:
        """The domain that runs `stage` now: the one that leads the stage's table already, else the first that may and can.

        A domain that may but cannot is never replaced by one that may not.

        Args:
            stage: The stage.
            leader: The domain that leads the table the stage writes, so that the stage stays where it is.

        Raises:
            DomainUnavailable: no allowed domain can run it.
        """
        allowed = [domain for domain in self._leaders() if self.policy.allows(stage, domain.name)]
        problems: dict[str, str] = {}
        for domain in sorted(allowed, key=lambda each: each.name != leader):
            problem = self.problem(domain) or self._take(domain)
            if problem is None:
                return domain
            problems[domain.name] = problem
        told = "; ".join(f"{name}: {why}" for name, why in problems.items())
        raise DomainUnavailable(
            f"no failure domain can run stage {stage}: {told or 'the placement policy allows none'}",
            fix="bring one of them back (`etl-assets domains list`, `heal`), or allow another in `placement_policy`",
            stage=stage.value,
            domain=next(iter(problems), None),
            allowed=tuple(domain.name for domain in allowed),
        )

    def reader(self) -> FailureDomain:
        """The domain to look at tables from: the first that can be used, else the first, whose tables then say why not.

        Before any root was used there is no table, and nobody to ask.
        """
        if all(self.memory.of(each.name).root_id is None for each in self.domains):
            return replace(self.domains[0], sites=())
        return next((each for each in self.domains if self.unusable(each) is None), self.domains[0])

    def expect_allowed(self, stage: Stage, domain: str) -> None:
        """Refuse a stage that is asked to run where it may not.

        Raises:
            DomainUnavailable: the policy does not allow it.
        """
        if self.policy.allows(stage, domain):
            return
        allowed = tuple(each.name for each in self._leaders() if self.policy.allows(stage, each.name))
        raise DomainUnavailable(
            f"the placement policy does not allow stage {stage} in {domain}",
            fix=f"run it in {' or '.join(allowed) or 'no domain: the policy allows none'}, or change `placement_policy`",
            stage=stage.value,
            domain=domain,
            allowed=allowed,
        )

    def problem(self, domain: FailureDomain) -> str | None:
        """Why a domain cannot run a stage now, None if it can. Changes nothing."""
        standing = self.memory.of(domain.name).standing
        if standing is not Standing.IN_USE:
            return f"{standing.value} by an operator"
        return self.unusable(domain)

    def unusable(self, domain: FailureDomain) -> str | None:
        """What is wrong with a domain's root, whatever an operator says of it. Changes nothing."""
        try:
            strange = self.memory.strange(domain.name, domain.root)
        except OSError as error:
            return f"its root {domain.root} cannot be read ({error.strerror})"
        if strange is not None:
            return f"{strange} ({domain.root})"
        if domain.root.exists() and not os.access(domain.root, os.R_OK | os.W_OK | os.X_OK):
            return f"its root {domain.root} is not writable"
        return None

    def _take(self, domain: FailureDomain) -> str | None:
        """Take the root into use, and those of the other domains with it: a table is made in all of them.

        Returns:
            Why the domain's own root cannot be taken; that of another one stops only what needs it.
        """
        problem = None
        for each in self.domains:
            try:
                if self.unusable(each) is None:
                    self.memory.take(each.name, each.root)
            except OSError as error:
                if each == domain:
                    problem = f"its root {each.root} cannot be used ({error.strerror})"
        return problem

    def named(self, name: str) -> FailureDomain | None:
        """A domain by its name."""
        return next((domain for domain in self.domains if domain.name == name), None)

    def _leaders(self) -> Iterator[FailureDomain]:
        """The domains whose replicas may be written first."""
        for domain in self.domains:
            role = next((site.role for site in domain.sites if site.name == domain.name), Role.VOTER)
            if role is Role.VOTER:
                yield domain
