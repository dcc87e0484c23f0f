"""Reads of a mirrored table: which version is acknowledged, and which replica serves it.

Belongs here: finding the acknowledged version, and binding a reader to a folder that holds it. Does not
belong here: opening that folder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from etl_assets.errors import Fenced, Leaderless, QuorumUnavailable, StaleGeneration, Unanswered
from etl_assets.mirroring.protocol.ballot import Ballot, quorum_unavailable
from etl_assets.mirroring.protocol.epochs import Epoch
from etl_assets.mirroring.protocol.fork import contradiction, forked, without_forked
from etl_assets.mirroring.protocol.locator import Locator, Role
from etl_assets.mirroring.protocol.proof import Proof
from etl_assets.mirroring.protocol.record import Record, State, newest_accepted
from etl_assets.mirroring.protocol.register import Held
from etl_assets.mirroring.protocol.table import Answer, MirroredTable
from etl_assets.mirroring.protocol.voter import Sources, Voter

logger = logging.getLogger("etl_assets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A replica that a reader is bound to: read `<uri>/<folder>` as of `version`.

    Attributes:
        domain: The replica's domain.
        uri: The root of that domain.
        folder: Key of the table's folder under the root.
        version: The acknowledged version.
        chain: The chain of that version.
        generation: The locator's generation when the binding was made.
    """

    domain: str
    uri: str
    folder: str
    version: int
    chain: str
    generation: int


class Reading:
    """A mirrored table as its readers see it, from any domain."""

    def __init__(self, table: MirroredTable, can_read: Callable[[str], bool] = lambda uri: True) -> None:
        """Prepare reads of a table; nothing is read yet.

        Args:
            table: The table.
            can_read: Whether the readers can open files under a root, given its URI.
        """
        self._table = table
        self._can_read = can_read
        self._proof = Proof()
        self._told: set[tuple[str, int]] = set()

    def acknowledged(self) -> State:
        """Return the newest state that a majority holds under one epoch.

        A newer state may be acknowledged already, by the votes of domains that did not answer. If one is seen
        and this cannot be ruled out, it is first delivered to the other voters. So a call that begins after
        an acknowledgement was reported returns at least the acknowledged state.

        Raises:
            QuorumUnavailable: no majority answers.
            Leaderless: a majority answers, but a change of leader is in progress or was left unfinished.
        """
        return self._acknowledged()[0]

    def locator(self) -> Locator | None:
        """Return the newest locator in any register, agreed on or not; None if none that answers has one."""
        records, _ = self._records()
        return newest_accepted(records.values()).locator if records else None

    def bind(self) -> Binding:
        """Bind to a replica that has published the acknowledged version.

        The replica of the home domain is preferred, then the leader's, then any other. A replica whose log is
        not the published one is skipped with a warning in the log.

        Raises:
            QuorumUnavailable: no majority answers, or no replica that readers can open has the acknowledged
                version.
            Leaderless: as for `acknowledged`.
        """
        state, records = self._acknowledged()
        # 1. Look for a replica that has published the acknowledged version.
        preferred = self._preferred(state)
        for domain in preferred:
            record = records.get(domain) or self._table.read(domain, state.locator).record
            if record is not None and self._flaw(domain, state, record) is None:
                return self._binding(domain, state, record)
        # 2. None has: the leader may have died between acknowledging and publishing the version. Publish it.
        sources = self._sources(state, records)
        missing: dict[str, str] = {}
        for domain in preferred:
            answer = Voter(self._table, domain, state.locator).publish(state, sources)
            flaw = answer.problem or "does not answer"
            if answer.record is not None:
                flaw = self._flaw(domain, state, answer.record)
                if flaw is None:
                    return self._binding(domain, state, answer.record)
            missing[domain] = flaw
        # 3. Name the replicas that have it under roots which these readers cannot open.
        for domain in state.locator.domains(Role.VOTER, Role.LEARNER):
            record = None if domain in preferred else self._table.read(domain, state.locator).record
            if record is not None and record.published.version >= state.version:
                missing[domain] = "has it, under a root that is not read from here"
        raise quorum_unavailable(self._table, f"version {state.version} cannot be read", missing)

    def _flaw(self, domain: str, state: State, record: Record) -> str | None:
        """Return why a replica cannot serve an acknowledged state, or None if it can."""
        if record.published.version < state.version:
            return "its replica is not as far"
        replica = self._table.replica(domain, state.locator)
        flaw: str | None = "its log is not the one that was published"
        try:
            if self._proof.holds(replica, record.published, state.base):
                flaw = forked(replica, record, state, ())
        except Unanswered as error:
            return error.message
        if flaw is None:
            return None
        if (place := (domain, record.published.folder)) not in self._told:
            self._told.add(place)
            logger.warning(
                "the table %s is not read from %s: %s; rebuild it with `etl-assets tables repair`",
                self._table.name,
                domain,
                flaw,
            )
        return flaw

    def rebind(self, binding: Binding) -> Binding:
        """Return the binding at the newest acknowledged version, on the same replica.

        Raises:
            StaleGeneration: the locator changed, the replica was rebuilt or another one is read now; call
                `bind`.
            QuorumUnavailable, Leaderless: as for `bind`.
        """
        now = self.bind()
        if (now.generation, now.domain, now.folder) != (
            binding.generation,
            binding.domain,
            binding.folder,
        ):
            raise StaleGeneration(
                f"a reader of the table {self._table.name} is bound to {binding.domain} at generation "
                f"{binding.generation}, the table is at generation {now.generation}, to be read in"
                f" {now.domain}",
                fix="bind again and go on from the same cursor; versions mean the same everywhere",
                table=self._table.name,
                held=binding.generation,
                current=now.generation,
            )
        return now

    def _acknowledged(self) -> tuple[State, Mapping[str, Record]]:
        """Return the acknowledged state, and the records that were counted to find it."""
        records, problems = self._records()
        if not records:
            raise quorum_unavailable(self._table, "nothing can be read", problems)
        newest = newest_accepted(records.values())
        state = _supported(newest.locator, records)
        if state is not None and self._is_the_newest(state, newest, records):
            return state, records
        missing = {
            domain: problems.get(domain) or _reached(records.get(domain)) for domain in newest.locator.voters
        }
        if not newest.locator.is_majority(records):
            raise quorum_unavailable(self._table, "no new version can be read", missing)
        try:
            Ballot(self._table, newest, self._sources(newest, records)).settle()
        except Fenced as error:
            claimant = error.by.domain if isinstance(error.by, Epoch) else ""
            raise Leaderless(
                f"nobody leads the table {self._table.name}: {claimant} has claimed to lead it, and has not"
                " begun to",
                fix="nothing: the next writer of the table leads it, at the latest the next look at the"
                " failure domains; by"
                f" hand `etl-assets tables relocate {self._table.name} --to` a domain that may lead",
                table=self._table.name,
                missing=missing,
                claimant=claimant,
                leader=newest.epoch.domain,
            ) from error
        except QuorumUnavailable as error:
            # Why a domain did not vote for the state now is newer than the reason that was read before.
            said = {domain: why or missing[domain] for domain, why in error.missing.items()}
            raise quorum_unavailable(self._table, "no new version can be read", said) from error
        return newest, records

    @staticmethod
    def _is_the_newest(state: State, newest: State, records: Mapping[str, Record]) -> bool:
        """Return whether no newer state can have been acknowledged before the records were read.

        This holds in two cases:

        - The supported state is itself the newest state that was seen.
        - All voters were seen, those included that a change of the locator in progress leaves out, and the
          newest state has the same epoch. Then all votes for a newer state were seen, and they are too few.

        A state of an older epoch is not enough: a vote for a newer state of its epoch may since have been
        replaced by a vote of the later epoch.

        Args:
            state: The newest state that a quorum of the records supports.
            newest: The newest state in any of the records.
            records: The records that count, by domain.
        """
        voters = {
            (replica.domain, replica.incarnation)
            for locator in (newest.locator, state.locator)
            for replica in locator.replicas
            if replica.role is not Role.LEARNER
        }
        everybody = voters <= {(domain, record.incarnation) for domain, record in records.items()}
        return state == newest or (everybody and state.epoch == newest.epoch)

    def _records(self) -> tuple[dict[str, Record], dict[str, str]]:
        """Read the registers, first of the configured domains, then of voters that the newest locator names.

        Returns:
            The records that count, and for each other domain that was asked why it does not count; both by
            domain.
        """
        answers: dict[str, Answer] = {}
        locator: Locator | None = None
        todo = list(self._table.roots)
        while todo:
            reads = {domain: partial(self._table.read, domain, locator) for domain in todo}
            silence = dict.fromkeys(todo, Answer(None, "did not answer in time"))
            answers |= silence | self._table.couriers.gather(reads, partial(self._suffices, dict(answers)))
            counted = self._counted(answers)
            if not counted:
                break
            locator = newest_accepted(counted.values()).locator
            todo = [domain for domain in locator.voters if domain not in answers]
        counted = self._counted(answers)
        newest = newest_accepted(counted.values()) if counted else None
        return counted, {
            domain: answer.problem or self._discounted(domain, answer.record, newest)
            for domain, answer in answers.items()
            if domain not in counted
        }

    def _discounted(self, domain: str, record: Record | None, newest: State | None) -> str:
        """Return why a record that was read does not count."""
        if record is None or record.accepted is None:
            return "has never voted"
        foreign = self._table.disqualified(
            Held(record, ""), domain, None if newest is None else newest.locator
        )
        return foreign or contradiction(record, newest or record.accepted) or "has no replica"

    def _suffices(self, answers: Mapping[str, Answer], more: Mapping[str, Answer]) -> bool:
        """Return whether the answers so far show that the newest state among them is acknowledged."""
        counted = self._counted({**answers, **more})
        if not counted:
            return False
        newest = newest_accepted(counted.values())
        return _supported(newest.locator, counted) == newest

    def _counted(self, answers: Mapping[str, Answer]) -> dict[str, Record]:
        """Return the records that count, by domain.

        A record counts if it has voted, its incarnation is the one that the newest locator among the answers
        names, and it does not contradict the newest state.
        """
        records = {
            domain: answer.record
            for domain, answer in answers.items()
            if answer.record is not None and answer.record.accepted is not None
        }
        if not records:
            return {}
        locator = newest_accepted(records.values()).locator
        known = {
            domain: record
            for domain, record in records.items()
            if (agreed := locator.replica(domain)) is not None and agreed.incarnation == record.incarnation
        }
        return without_forked(known)

    def _sources(self, state: State, records: Mapping[str, Record]) -> Sources:
        """Return the replicas with data that have voted for a state, each with the number of its folder."""
        return [
            (self._table.replica(domain, state.locator), record.published.folder)
            for domain, record in records.items()
            if domain in state.locator.domains(Role.VOTER, Role.LEARNER)
            and record.accepted is not None
            and record.accepted.covers(state)
        ]

    def _preferred(self, state: State) -> list[str]:
        """Return the domains with data that readers can open: home first, then the leader's, then others."""
        first = (self._table.home, state.epoch.domain)
        domains = [
            replica.domain
            for replica in state.locator.replicas
            if replica.has_data and self._can_read(replica.uri)
        ]
        return sorted(domains, key=lambda domain: first.index(domain) if domain in first else len(first))

    def _binding(self, domain: str, state: State, record: Record) -> Binding:
        replica = self._table.replica(domain, state.locator)
        agreed = state.locator.replica(domain)
        return Binding(
            domain=domain,
            uri=self._table.roots[domain] if agreed is None else agreed.uri,
            folder=replica.folder(record.published.folder),
            version=state.version,
            chain=state.chain,
            generation=state.locator.generation,
        )


def _reached(record: Record | None) -> str:
    """Return how far a voter is, for an error message."""
    accepted = None if record is None else record.accepted
    return "was not asked" if accepted is None else f"has version {accepted.version}"


def _supported(locator: Locator, records: Mapping[str, Record]) -> State | None:
    """Return the newest state that a quorum of a locator's voters has accepted under one epoch, or None.

    Pass the newest locator: the majority of an older one may have been outvoted by a later change.
    """
    states = {record.accepted for record in records.values() if record.accepted is not None}
    for state in sorted(states, key=lambda state: state.order, reverse=True):
        votes = [
            domain for domain, record in records.items() if record.accepted and record.accepted.covers(state)
        ]
        if locator.has_quorum(votes):
            return state
    return None
