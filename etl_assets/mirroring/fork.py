"""A fork: a replica has published versions that the agreed history does not have.

Belongs here: telling whether it has. Does not belong here: what follows (`voter.py`, `leadership.py`, `reading.py`: it does not count;
`verification.py`, `inspection.py`: it is reported).

What is published was acknowledged. So of what two replicas have published one goes on where the other ends, and what is
agreed on goes on from both. Only a root that was put back from a backup, and so forgot its votes, breaks that: with it a
majority may acknowledge other versions after those that it remembers. Which of the two histories counts is for an operator to
say. Until then a replica with the other one is treated like one with another memory: it is not counted, and not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.chain import extend_all
from etl_assets.mirroring.record import Published, Record, State, newest_accepted
from etl_assets.mirroring.replica import ReplicaStore

Sources = Iterable[tuple[ReplicaStore, int]]


def contradiction(record: Record, state: State) -> str | None:
    """Why a record and a state that is newer than all that was acknowledged cannot both be of one history, by the registers
    alone; None if nothing speaks against it.

    Of a state that is not that new it may say so, too: a version may have been published since.
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
    """Those of some records that have voted which do not contradict the newest state among them."""
    if not records:
        return {}
    newest = newest_accepted(records.values())
    return {domain: record for domain, record in records.items() if contradiction(record, newest) is None}


def forked(replica: ReplicaStore, record: Record, state: State, sources: Sources) -> str | None:
    """Why what a replica has published is not part of an acknowledged history, nor the other way round; None if it is.

    Args:
        replica: The replica, whose log is the published one.
        record: Its record.
        state: The acknowledged state; the record may be newer.
        sources: Replicas that hold the state's history, with the folder each has it in.

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
        return None  # published meanwhile; or damage, which is looked for elsewhere
    return other_history(at.version, "published", state)


def chain_at(at: Published, state: State, sources: Sources) -> str | None:
    """The chain of a state's history at the version that is published somewhere, as a source proves it; None if none does."""
    if at.version < state.base.first - 1:
        return None  # before all that is kept
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
    """Refuse to go on with a replica of another history.

    Raises:
        ReplicaCorrupt: it is one.
    """
    if problem is not None:
        raise ReplicaCorrupt(
            f"the replica of {table} in {domain} {problem}",
            fix=f"find out which history counts (docs/operations.md, A fork); `etl-assets tables repair {table}` builds this"
            " replica again from the others",
            table=table,
            domain=domain,
        )


def other_history(version: int, did: str, state: State) -> str:
    return (
        f"has forked: it {did} version {version:,}, which is not in the history that the others agreed on, up to version"
        f" {state.version:,}; a root was restored from a backup"
    )
