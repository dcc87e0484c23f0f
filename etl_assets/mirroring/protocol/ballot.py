"""Ballots: have a state acknowledged by the voters, then publish it.

Any process of any domain may do this for a state that a leader has proposed. It only delivers what was
decided in the leader's own domain, and a voter that promised a higher epoch refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from etl_assets.errors import Fenced, MirrorError, QuorumUnavailable
from etl_assets.mirroring.protocol.epochs import Epoch
from etl_assets.mirroring.protocol.locator import Locator, Role
from etl_assets.mirroring.protocol.record import State
from etl_assets.mirroring.protocol.table import Answer, MirroredTable
from etl_assets.mirroring.protocol.voter import Sources, Voter

Answers = Mapping[str, Answer]


class Ballot:
    """A vote on one state (a voting round of Paxos)."""

    def __init__(
        self, table: MirroredTable, state: State, sources: Sources, *, before: Locator | None = None
    ) -> None:
        """Prepare a ballot; nothing is asked yet.

        Args:
            table: The table.
            state: The state to vote for.
            sources: Replicas that hold its history, best first.
            before: The previous locator, if the state changes it. Then a majority of its voters must agree as
                well.
        """
        self._table = table
        self._state = state
        self._sources = sources
        self._before = before
        self._answers: dict[str, Answer] = {}

    def settle(self) -> None:
        """Have the state acknowledged.

        The voters with data are asked first, concurrently. Witnesses are asked last, and only once the data
        is in enough domains.

        Raises:
            Fenced: a voter promised a higher epoch, and the others were too few.
            QuorumUnavailable: too few voters answered. The state may be acknowledged all the same, now or
                later.
        """
        self._ask(self._domains(Role.VOTER), self._decided)
        if self._has_copies() and not self._acknowledged():
            self._ask(self._domains(Role.WITNESS), self._acknowledged)
            # The witnesses did not suffice: wait for the voters with data that were late. Asking twice is
            # safe.
            unanswered = [domain for domain in self._domains(Role.VOTER) if domain not in self._answers]
            if unanswered and not self._acknowledged():
                self._ask(unanswered, self._acknowledged)
        if not self._acknowledged():
            raise self._failure()

    def newest_vote(self) -> State | None:
        """Return the newest later state of the same epoch that a voter had accepted, or None without one."""
        accepted = [answer.record.accepted for answer in self._answers.values() if answer.record is not None]
        newer = [each for each in accepted if each is not None and each.covers(self._state)]
        newest = max(newer, key=lambda each: each.order, default=self._state)
        return None if newest.order == self._state.order else newest

    def publish(self) -> None:
        """Publish the acknowledged state in the replicas that voted for it.

        Late voters and witnesses that were not needed get the state as well, but are not waited for. The next
        ballot brings replicas up to date that could not be reached.
        """
        voted = {domain for domain in self._domains(Role.VOTER) if self._voted(domain)}
        errands = {
            domain: partial(self._publish, domain)
            for domain in (*self._domains(Role.VOTER), *self._domains(Role.WITNESS))
            if domain in voted or domain not in self._answers
        }
        self._table.couriers.gather(errands, lambda answers: voted <= set(answers))

    def _voter(self, domain: str) -> Voter:
        """Return a domain's voter. A domain that the state removes is at the root in the previous locator."""
        known = self._before is None or self._state.locator.replica(domain) is not None
        return Voter(self._table, domain, self._state.locator if known else self._before)

    def _vote(self, domain: str) -> Answer:
        return self._voter(domain).vote(self._state, self._sources)

    def _publish(self, domain: str) -> Answer:
        voter = self._voter(domain)
        if not self._voted(domain):
            voter.vote(self._state, self._sources)
        return voter.publish(self._state, self._sources)

    def _ask(self, domains: Iterable[str], enough: Callable[[], bool]) -> None:
        def so_far(answers: Answers) -> bool:
            self._answers.update(answers)
            return enough()

        errands = {domain: partial(self._vote, domain) for domain in domains}
        so_far(self._table.couriers.gather(errands, so_far))

    def _decided(self) -> bool:
        """Return whether to stop waiting for voters with data: the witnesses can complete the majority."""
        return self._has_copies() and all(
            locator.is_majority({*self._votes(locator), *locator.domains(Role.WITNESS)})
            for locator in self._locators()
        )

    def _acknowledged(self) -> bool:
        return self._has_copies() and all(
            locator.is_majority(self._votes(locator)) for locator in self._locators()
        )

    def _has_copies(self) -> bool:
        return self._state.locator.has_copies(self._votes(self._state.locator))

    def _locators(self) -> list[Locator]:
        return [self._state.locator, *([] if self._before is None else [self._before])]

    def _votes(self, locator: Locator) -> set[str]:
        """Return the domains that voted with the incarnation that a locator names."""
        return {
            replica.domain for replica in locator.replicas if self._voted(replica.domain, replica.incarnation)
        }

    def _voted(self, domain: str, incarnation: str | None = None) -> bool:
        answer = self._answers.get(domain)
        if answer is None or answer.record is None or answer.record.accepted is None:
            return False
        known = incarnation is None or answer.record.incarnation == incarnation
        return known and answer.record.accepted.covers(self._state)

    def _domains(self, role: Role) -> list[str]:
        return list(dict.fromkeys(domain for one in self._locators() for domain in one.domains(role)))

    def _failure(self) -> MirrorError:
        promised = [
            answer.record.promised
            for answer in self._answers.values()
            if answer.record is not None and answer.record.promised > self._state.epoch
        ]
        if promised:
            return fenced(self._table, self._state, by=max(promised))
        missing = {
            domain: self._answers[domain].problem
            if domain in self._answers
            else "was not asked or did not answer"
            for locator in self._locators()
            for domain in locator.voters
            if domain not in self._votes(locator)
        }
        return quorum_unavailable(self._table, f"version {self._state.version} is not acknowledged", missing)


def fenced(table: MirroredTable, state: State | None, why: str = "", *, by: Epoch | None = None) -> Fenced:
    """Return the error for a leader that was superseded, or that lost a race for the lead."""
    return Fenced(
        f"{table.home} does not lead the table {table.name}: {why or f'epoch {by} was promised'}",
        fix="run the step again: it finds the new leader; what was not acknowledged is done again there",
        table=table.name,
        epoch=None if state is None else state.epoch,
        by=by,
    )


def quorum_unavailable(table: MirroredTable, what: str, missing: Mapping[str, str]) -> QuorumUnavailable:
    """Return the error for too few answers, which names the missing domains with their problems."""
    named = "; ".join(f"{domain}: {problem}" for domain, problem in sorted(missing.items()))
    return QuorumUnavailable(
        f"too few voters of the table {table.name} answer, {what} ({named})",
        fix="bring the domains named back; nothing acknowledged is lost, and the step goes on from its"
        " cursor",
        table=table.name,
        missing=dict(missing),
    )
