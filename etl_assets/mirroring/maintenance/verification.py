"""Verification of a replica: compare its published part with what was agreed on.

Reads the whole log from the base on, and asks for the size of every file in use. `inspection.py` does the
same in bounded steps; `contents.py` compares the bytes of data files.
"""

from __future__ import annotations

from collections.abc import Iterator

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.checkpoints import Checkpoints
from etl_assets.mirroring.protocol.fork import forked
from etl_assets.mirroring.protocol.locator import ReplicaConfig, Role
from etl_assets.mirroring.protocol.proof import Proof
from etl_assets.mirroring.protocol.record import Base, Published, Record, State
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.protocol.table import MirroredTable
from etl_assets.mirroring.protocol.unnamed_checkpoints import SumsUp, foreign_checkpoint


def problems(table: MirroredTable, agreed: ReplicaConfig, state: State, sums_up: SumsUp) -> list[str]:
    """Return what is wrong with a replica, one message for each problem.

    A replica that does not answer or has lost its register is a problem as well. A replica that ends before
    the base has no problems: nothing it holds is needed, and it is rebuilt from the base.

    Args:
        table: The table.
        agreed: The replica.
        state: The acknowledged state to compare with.
        sums_up: Compares a checkpoint with log entries.
    """
    answer = table.read(agreed.domain, state.locator)
    if answer.record is None:
        return [answer.problem or "has no register"]
    try:
        return list(_problems(table, agreed, answer.record, state, sums_up))
    except (Unanswered, ReplicaCorrupt) as error:
        return [error.message]


def _problems(
    table: MirroredTable, agreed: ReplicaConfig, record: Record, state: State, sums_up: SumsUp
) -> Iterator[str]:
    replica, at = table.replica(agreed.domain, state.locator), record.published
    base = begins_at(replica, record, state)
    if at.version < base.first:
        return
    found = list(_damage(table, replica, agreed, at, base))
    # A fork can be recognized only if the log is the one that the register says was published.
    if not found and (fork := forked(replica, record, state, holders(table, agreed, state))) is not None:
        found = [fork]
    yield from found
    # A checkpoint can be compared only with a log that is the agreed one.
    if not found and agreed.has_data:
        problem = foreign_checkpoint(replica, at, base, state.version, sums_up)
        yield from () if problem is None else (problem,)


def _damage(
    table: MirroredTable, replica: ReplicaStore, agreed: ReplicaConfig, at: Published, base: Base
) -> Iterator[str]:
    there = Checkpoints(replica, at.folder)
    content = there.of(base) if agreed.has_data and base.first else None
    if agreed.has_data and base.first and content is None:
        yield (
            f"the checkpoint of version {base.first}, with which the log begins, is gone or not what was"
            " agreed on"
        )
    live = () if content is None else table.live_files(content)
    yield from replica.broken(at, has_data=agreed.has_data, base=base, live=live)
    if (problem := there.problem()) is not None:
        yield problem


def fork_of(table: MirroredTable, agreed: ReplicaConfig, state: State) -> str | None:
    """Return why a replica's published history is not that of an acknowledged state.

    None if it is that history, if the replica has no record that counts, or if its log is damaged.

    Raises:
        Unanswered: the replica's store does not answer.
    """
    record = table.read(agreed.domain, state.locator).record
    if record is None:
        return None
    replica = table.replica(agreed.domain, state.locator)
    found = forked(replica, record, state, holders(table, agreed, state))
    if found is not None and not Proof().holds(replica, record.published, state.base):
        return None  # a damaged log says nothing about what was agreed on
    return found


def holders(table: MirroredTable, agreed: ReplicaConfig, state: State) -> Iterator[tuple[ReplicaStore, int]]:
    """Yield the other replicas and their folders, the leader's first, as sources of an acknowledged history.

    A replica may lack a part of the history: reading it shows that.
    """
    others = [domain for domain in state.locator.domains(*Role) if domain != agreed.domain]
    for domain in sorted(others, key=lambda domain: domain != state.epoch.domain):
        if (record := table.read(domain, state.locator).record) is not None:
            yield table.replica(domain, state.locator), record.published.folder


def begins_at(replica: ReplicaStore, record: Record, state: State) -> Base:
    """Return the base to compare from: the one the replica voted for, or the state's if rebuilt from that."""
    voted = state.base if record.accepted is None else record.accepted.base
    folder = record.published.folder
    has_it = voted == state.base or replica.entry(folder, voted.first) is not None
    return voted if has_it else state.base
