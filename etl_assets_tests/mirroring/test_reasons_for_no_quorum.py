"""`QuorumUnavailable` says of each voter why it does not count: what it answered, not merely that it is
behind.
"""

from __future__ import annotations

import dataclasses

import pytest

from etl_assets.errors import QuorumUnavailable
from etl_assets.mirroring.protocol.record_codec import decode, encode
from etl_assets.testing.memory_store import MemoryStore, StoreFault
from etl_assets_tests.mirroring.platform import Platform

REGISTER = "register/events.json"


class NoSpace:
    """Stores in which nothing can be put, and which answer otherwise; and stores that do not answer at
    all.
    """

    def __init__(self) -> None:
        self.full: set[str] = set()
        self.down: set[str] = set()

    def before(self, store, operation, key):
        if store in self.down:
            return StoreFault.LOST
        return (
            StoreFault.LOST
            if store in self.full and operation in ("create", "put", "replace", "link")
            else None
        )

    def after(self, store, operation, key):
        pass

    def later(self, store, effect):
        pass


@pytest.fixture
def weather() -> NoSpace:
    return NoSpace()


@pytest.fixture
def platform(weather) -> Platform:
    made = Platform({domain: MemoryStore(domain, weather) for domain in "abc"})
    made.bootstrap()
    return made


def files_of(platform: Platform, domain: str) -> dict[str, bytes]:
    store = platform.stores[domain]
    assert isinstance(store, MemoryStore)
    return store.files


def put_ahead(platform: Platform) -> None:
    """A version that only the leader has voted for."""
    leader = platform.process("a")
    leader.spark_commit(leader.lead())
    with pytest.raises(QuorumUnavailable):
        leader.mirror.push()


def test_a_register_of_another_incarnation_is_named_as_that(platform):
    platform.process("a").commit()
    for domain in "bc":
        files = files_of(platform, domain)
        record = decode(files[REGISTER], domain=domain, key=REGISTER)
        accepted = record.accepted
        older = dataclasses.replace(accepted, version=-1) if accepted is not None else None
        files[REGISTER] = encode(dataclasses.replace(record, incarnation=f"foreign-{domain}", accepted=older))
    with pytest.raises(QuorumUnavailable) as missing:
        platform.process("b").reading.acknowledged()
    another = "has the register of another incarnation: its root was replaced"
    assert missing.value.missing["b"] == missing.value.missing["c"] == another
    assert "holds less" not in missing.value.message


def test_what_keeps_the_others_from_voting_is_named(platform, weather):
    platform.process("a").commit()
    weather.full |= {"b", "c"}
    put_ahead(platform)
    weather.down.add("c")
    with pytest.raises(QuorumUnavailable) as missing:
        platform.process("b").reading.acknowledged()
    assert set(missing.value.missing) == {"b", "c"}, "a has voted for it"
    assert "did not answer" in missing.value.missing["b"], "what it said to the vote, not to the look"
    assert "holds less" not in missing.value.message


def test_a_voter_that_is_behind_is_told_by_how_much(platform, weather):
    """The register of c is unreadable, so that b is one of two that answer, and cannot be brought further."""
    platform.process("a").commit()
    weather.full |= {"b", "c"}
    put_ahead(platform)
    files_of(platform, "c")[REGISTER] = b"no register"
    files_of(platform, "a").pop(REGISTER)
    with pytest.raises(QuorumUnavailable) as missing:
        platform.process("b").reading.acknowledged()
    assert "has no register" in missing.value.missing["a"]
    assert "cannot be read" in missing.value.missing["c"]
    assert missing.value.missing["b"] == "has version 0"
