"""Forks: a replica has published versions that are not in the agreed history.

Belongs here: detecting a fork. Does not belong here: its consequences. `voter.py`, `leadership.py` and
`reading.py` do not count a forked replica; `verification.py` and `inspection.py` report it.

Published versions were acknowledged. So of two replicas the published history of one continues that of the
other, and the agreed history continues both. Only a root that was restored from a backup breaks this, because
it has forgotten votes: with it a majority may acknowledge other versions after those that it remembers. An
operator must decide which of the two histories counts. Until then a forked replica is treated like one with
another incarnation: it is not counted, and not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.chain import extend_all
from etl_assets.mirroring.protocol.record import Published, Record, State, newest_accepted
from etl_assets.mirroring.protocol.replica import ReplicaStore

Sources = Iterable[tuple[ReplicaStore, int]]


def contradiction(record: Record, state: State) -> str | None:
    """Return why a record and a state cannot be of one history, or None if nothing speaks against it.

    Compares registers only, not logs. The state must be at least as new as every acknowledged state. For an
    older one the answer may be wrong, as versions may have been published since.
    """
    at, accepted = record.published, record.accepted
    if accepted is not None and accepted.epoch == state.epoch:
        if accepted.version == state.version and accepted.chain != state.chain:
            return other_history(accepted.version, "voted for", state)
        if accepted.covers(state) and accepted.version >= at.version > state.version:
            return None  # the state is the older one
    if at.version > state.version or (at.version == state.version and at.chain != state.chain):
        return other_history(at.version, "published", state)
    return None


def without_forked(records: Mapping[str, Record]) -> dict[str, Record]:
    """Return the records that do not contradict the newest accepted state among them; all must have voted."""
    if not records:
        return {}
    newest = newest_accepted(records.values())
    return {domain: record for domain, record in records.items() if contradiction(record, newest) is None}


def forked(replica: ReplicaStore, record: Record, state: State, sources: Sources) -> str | None:
    """Return why a replica has forked from an acknowledged history, or None if it has not.

    It has forked if its published history is no part of the acknowledged one, and the acknowledged one no
    part of it. None is also returned if no source can prove it, or if the log is damaged.

    Args:
        replica: The replica. Its log must be the published one.
        record: The replica's record.
        state: The acknowledged state; the record may be newer.
        sources: Replicas that hold the state's history, each with the number of its folder.

    Raises:
        Unanswered: the replica's store does not answer.
    """
    at = record.published
    if at.version <= state.version:
        chain = state.chain if at.version == state.version else chain_at(at, state, sources)
        return other_history(at.version, "published", state) if chain not in (None, at.chain) else None
    entries = [replica.entry(at.folder, each) for each in range(state.version + 1, at.version + 1)]
    there = [entry for entry in entries if entry is not None]
    if len(there) < len(entries) or extend_all(state.chain, there) == at.chain:
        return None  # published in the meantime, or damage, which `verification.py` looks for
    return other_history(at.version, "published", state)


def chain_at(at: Published, state: State, sources: Sources) -> str | None:
    """Return the chain of a state's history at a published version, or None if no source can prove it.

    Sources that do not answer are skipped.
    """
    if at.version < state.base.first - 1:
        return None  # the log no longer reaches back to that version
    for replica, folder in sources:
        try:
            if replica.history(folder, at, state) is not None:
                return at.chain
            history = replica.history(folder, state.base.start(folder), state)
        except Unanswered:
            continue
        if history is not None:
            return extend_all(state.base.before, history[: at.version + 1 - state.base.first])
    return None


def expect_no_fork(problem: str | None, *, table: str, domain: str) -> None:
    """Refuse to use a replica that has forked.

    Args:
        problem: Why it has forked, or None.
        table: The table.
        domain: The replica's domain.

    Raises:
        ReplicaCorrupt: there is a problem.
    """
    if problem is not None:
        raise ReplicaCorrupt(
            f"the replica of {table} in {domain} {problem}",
            fix="find out which history counts (docs/operations.md, A fork); `etl-assets tables repair"
            f" {table}` builds this replica again from the others",
            table=table,
            domain=domain,
        )


def other_history(version: int, did: str, state: State) -> str:
    """Return the description of a fork: the version, what the replica `did` with it, and the agreed head."""
    return (
        f"has forked: it {did} version {version:,}, which is not in the history that the others agreed on, up"
        f" to version {state.version:,}; a root was restored from a backup"
    )
