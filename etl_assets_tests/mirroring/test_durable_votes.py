"""A vote rests on what is durable, also where another process has put it there and has not come to make it
so.
"""

from __future__ import annotations

import pytest

from etl_assets.testing.memory_store import MemoryStore, StoreFault
from etl_assets_tests.mirroring.platform import Platform

REGISTER = "register/events.json"


class Notes:
    """What was asked of one store, in order; the answer to a creation may be lost."""

    def __init__(self, store: str) -> None:
        self._store = store
        self.asked: list[tuple[str, str]] = []
        self.lost = ""

    def before(self, store, operation, key):
        if store != self._store:
            return None
        self.asked.append((operation, key))
        if operation == "create" and key == self.lost:
            self.lost = ""
            return StoreFault.UNANSWERED
        return None

    def after(self, store, operation, key):
        pass

    def later(self, store, effect):
        pass


@pytest.mark.parametrize("place", ["staged", "published"])
@pytest.mark.parametrize("by", ["another process", "a creation that was not answered"])
def test_an_entry_that_is_there_already_is_made_durable_before_the_register_rests_on_it(place, by):
    notes = Notes("b")
    platform = Platform({domain: MemoryStore(domain, notes) for domain in "abc"})
    platform.bootstrap()
    leader = platform.process("a")
    lead = leader.commit()
    entry = leader.spark_commit(lead)
    state = leader.mirror.leading()[1].with_entry(entry)
    there = platform.process("b").mirror.home
    key = there.staged_key(1, state.chain) if place == "staged" else there.entry_key(1, 1)
    store = platform.stores["b"]
    assert isinstance(store, MemoryStore)
    if by == "another process":
        store.files[key] = entry  # linked, and stopped before it could sync the folder
    else:
        notes.lost = key
    notes.asked.clear()
    leader.mirror.acknowledge(lead, entry)
    assert platform.process("b").mirror.held().record.published.version == 1
    writes = [number for number, asked in enumerate(notes.asked) if asked == ("replace", REGISTER)]
    vote, publishing = writes[0], writes[-1]
    durable = notes.asked.index(("persist", key))
    assert durable < (vote if place == "staged" else publishing)
