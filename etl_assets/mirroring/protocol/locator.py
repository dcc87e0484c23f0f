"""The locator: a table's replicas with their roots and roles, agreed on by the voters like the head.

Does not belong here: health, which is observed and not agreed on; and the folder of a replica, which each
replica's own register says (`record.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


class Role(StrEnum):
    """The role of a replica.

    VOTER: holds log and data, counts for the quorum, may lead.
    WITNESS: holds log entries only, counts for the quorum, cannot serve reads or lead.
    LEARNER: holds log and data, does not count.
    """

    VOTER = "voter"
    WITNESS = "witness"
    LEARNER = "learner"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """One replica of a table; a domain has at most one.

    Attributes:
        domain: The replica's domain.
        uri: The root of that domain.
        role: The replica's role.
        incarnation: Name of the register that this replica votes from. If the register under the root is
            missing or has another incarnation, it has lost its promises and is not counted.
    """

    domain: str
    uri: str
    role: Role
    incarnation: str

    @property
    def has_data(self) -> bool:
        return self.role is not Role.WITNESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Locator:
    """The replica set of a table.

    Attributes:
        generation: A number that grows with every change of the replicas or of the leader.
        one_copy: Whether an acknowledgement needs the data in one domain only. It is set deliberately while
            every other voter with data is lost; one more loss would then lose data.
        replicas: The replicas.
    """

    generation: int
    one_copy: bool
    replicas: tuple[ReplicaConfig, ...]

    def replica(self, domain: str) -> ReplicaConfig | None:
        return next((replica for replica in self.replicas if replica.domain == domain), None)

    def domains(self, *roles: Role) -> tuple[str, ...]:
        return tuple(replica.domain for replica in self.replicas if replica.role in roles)

    @property
    def voters(self) -> tuple[str, ...]:
        """Domains of the replicas that count: voters with data, and witnesses."""
        return self.domains(Role.VOTER, Role.WITNESS)

    @property
    def copies_needed(self) -> int:
        """Number of domains that must hold the data before a commit counts as acknowledged."""
        return 1 if self.one_copy else min(2, len(self.domains(Role.VOTER)))

    def has_quorum(self, votes: Collection[str]) -> bool:
        """Return whether these votes acknowledge a state: a majority, and the data in enough domains."""
        return self.is_majority(votes) and self.has_copies(votes)

    def is_majority(self, votes: Collection[str]) -> bool:
        """Return whether these domains are a majority of the voters, witnesses included."""
        return sum(domain in votes for domain in self.voters) > len(self.voters) // 2

    def has_copies(self, votes: Collection[str]) -> bool:
        """Return whether these domains hold enough copies of the data; witnesses hold none."""
        return sum(domain in votes for domain in self.domains(Role.VOTER)) >= self.copies_needed

    def next(
        self, *, replicas: Iterable[ReplicaConfig] | None = None, one_copy: bool | None = None
    ) -> Locator:
        """Return the locator of the next generation; what is None stays as it is."""
        return replace(
            self,
            generation=self.generation + 1,
            replicas=self.replicas if replicas is None else tuple(replicas),
            one_copy=self.one_copy if one_copy is None else one_copy,
        )
