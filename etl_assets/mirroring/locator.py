"""Which replicas a table has, where, and in which role: what the voters agree on beside the head.

Health is not here: it is observed, not agreed. Nor is the folder a replica lies in: that is each replica's own to say
(`record.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


class Role(StrEnum):
    """What a replica is for.

    VOTER: log and data; counts for the quorum, may lead.
    WITNESS: log entries only; counts for the quorum, cannot serve reads or lead.
    LEARNER: log and data; does not count.
    """

    VOTER = "voter"
    WITNESS = "witness"
    LEARNER = "learner"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """One replica; a domain has at most one of a table.

    `incarnation` names the memory this replica votes from: a register under that root with another incarnation, or none,
    has forgotten what it promised and is not counted.
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
    """The replicas, the generation that grows with every change of them or of the leader, and the one-copy flag.

    `one_copy`: an acknowledgement needs the data in one domain only. It is set knowingly, while every other voter with
    data is gone; one more loss would then lose data.
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
        """Domains that count, witnesses included."""
        return self.domains(Role.VOTER, Role.WITNESS)

    @property
    def copies_needed(self) -> int:
        """In how many domains the data must be before a commit counts as acknowledged."""
        return 1 if self.one_copy else min(2, len(self.domains(Role.VOTER)))

    def has_quorum(self, votes: Collection[str]) -> bool:
        """Whether these domains make an acknowledgement: a majority of the voters, and the data in enough domains."""
        return self.is_majority(votes) and self.has_copies(votes)

    def is_majority(self, votes: Collection[str]) -> bool:
        return sum(domain in votes for domain in self.voters) > len(self.voters) // 2

    def has_copies(self, votes: Collection[str]) -> bool:
        return sum(domain in votes for domain in self.domains(Role.VOTER)) >= self.copies_needed

    def next(
        self, *, replicas: Iterable[ReplicaConfig] | None = None, one_copy: bool | None = None
    ) -> Locator:
        """The locator of the next generation."""
        return replace(
            self,
            generation=self.generation + 1,
            replicas=self.replicas if replicas is None else tuple(replicas),
            one_copy=self.one_copy if one_copy is None else one_copy,
        )
