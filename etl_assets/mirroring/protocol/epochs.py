"""The fence epoch: a number and the domain that claimed it.

Two domains can never hold the same epoch, and within a domain the conditional write to its own register
admits one claimant. Order is by number, then by name; a higher epoch fences every lower one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """A fence epoch (the ballot number of Paxos), ordered by number, then by the name of its domain."""

    number: int
    domain: str

    def __str__(self) -> str:
        return f"{self.number}/{self.domain}" if self.domain else str(self.number)


BEFORE_ALL = Epoch(0, "")
"""The epoch of a register that no domain has led yet."""
