"""A root that answers for a moment as if nothing were in it: a path that is mounted again, a negative cache.

Nothing is reported as acknowledged, and no table begins, on the word of such an answer.
"""

from __future__ import annotations

import pytest

from etl_assets.error_policy import Decision, decide
from etl_assets.errors import QuorumUnavailable
from etl_assets.testing.memory_store import MemoryStore, StoreFault
from etl_assets_tests.mirroring.platform import Platform


class Blink:
    """The next look at a key of one store finds nothing."""

    def __init__(self) -> None:
        self.at: tuple[str, str] | None = None

    def before(self, store, operation, key):
        if self.at is not None and self.at[0] == store and key.endswith(self.at[1]):
            self.at = None
            return StoreFault.ABSENT
        return None

    def after(self, store, operation, key):
        pass

    def later(self, store, effect):
        pass


@pytest.fixture
def blink() -> Blink:
    return Blink()


@pytest.fixture
def platform(blink) -> Platform:
    made = Platform({domain: MemoryStore(domain, blink) for domain in "abc"})
    made.bootstrap()
    return made


def test_a_commit_that_the_home_root_hides_for_a_moment_is_not_reported_as_acknowledged(platform, blink):
    leader = platform.process("a")
    lead = leader.commit()
    entry = leader.spark_commit(lead)
    blink.at = ("a", f"{lead.version + 1:020d}.json")
    with pytest.raises(QuorumUnavailable, match="version 1 is not acknowledged") as refused:
        leader.mirror.acknowledge(lead, entry)
    assert decide(refused.value) is Decision.RETRY
    accepted = [platform.process(each).mirror.held().record.accepted for each in "abc"]
    assert [state.version for state in accepted if state is not None] == [0, 0, 0]
    assert leader.lead().version == 1, "it stands in the home log, and is pushed first"


def test_a_commit_that_another_process_pushed_meanwhile_is_known_by_its_chain(platform, blink):
    leader = platform.process("a")
    lead = leader.commit()
    entry = leader.spark_commit(lead)
    platform.process("a").mirror.push()
    blink.at = ("a", f"{lead.version + 1:020d}.json")
    assert leader.mirror.acknowledge(lead, entry).version == 1
