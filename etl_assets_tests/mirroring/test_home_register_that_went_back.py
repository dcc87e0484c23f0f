"""The root of the leading domain is put back from a backup, and nobody else has lost anything: its register
still says that it leads, and has forgotten what it put forward since.
"""

from __future__ import annotations

import pytest

from etl_assets.errors import ReplicaCorrupt
from etl_assets.testing.memory_store import MemoryStore
from etl_assets_tests.mirroring.platform import Platform, Process


@pytest.fixture
def platform() -> Platform:
    made = Platform({domain: MemoryStore(domain) for domain in "abc"})
    made.bootstrap()
    return made


def files(platform: Platform, domain: str) -> dict[str, bytes]:
    store = platform.stores[domain]
    assert isinstance(store, MemoryStore)
    return store.files


def put_back(platform: Platform, backup: dict[str, bytes]) -> None:
    there = files(platform, "a")
    there.clear()
    there.update(backup)


def committed(leader: Process, versions: int) -> list[bytes]:
    entries = []
    for _ in range(versions):
        lead = leader.lead()
        entries.append(leader.spark_commit(lead))
        leader.mirror.acknowledge(lead, entries[-1])
    leader.mirror.follow()
    return entries


def log(platform: Platform, domain: str) -> list[bytes]:
    reader = platform.process(domain)
    binding = reader.reading.bind()
    assert binding.domain == domain
    return [
        files(platform, domain)[f"{binding.folder}/_delta_log/{version:020d}.json"]
        for version in range(binding.version + 1)
    ]


@pytest.mark.parametrize("forgotten", [1, 2, 3])
def test_a_new_process_takes_up_the_lead_again_from_what_the_others_have(platform, forgotten):
    entries = committed(platform.process("a"), 2)
    backup = dict(files(platform, "a"))
    entries += committed(platform.process("a"), forgotten)
    put_back(platform, backup)
    again = platform.process("a")
    assert again.lead().version == 1 + forgotten, "nothing is built on what it remembers"
    entries += committed(again, 1)
    assert [log(platform, domain) for domain in "abc"] == [entries] * 3


@pytest.mark.parametrize("forgotten", [1, 2, 3])
def test_a_process_that_led_before_is_told_that_its_commit_does_not_count(platform, forgotten):
    running = platform.process("a")
    entries = committed(running, 2)
    backup = dict(files(platform, "a"))
    entries += committed(running, forgotten)
    put_back(platform, backup)
    lead = running.leadership.current()
    entry = running.spark_commit(lead, b"planned on what was forgotten")
    with pytest.raises(ReplicaCorrupt, match="has forgotten"):
        running.mirror.acknowledge(lead, entry)
    assert platform.process("b").reading.acknowledged().version == 1 + forgotten
    entries += committed(platform.process("a"), 1)
    assert [log(platform, domain) for domain in "abc"] == [entries] * 3


def test_a_commit_that_another_domain_leads_after_it_went_back_keeps_everything(platform):
    entries = committed(platform.process("a"), 2)
    backup = dict(files(platform, "a"))
    entries += committed(platform.process("a"), 2)
    put_back(platform, backup)
    entries += committed(platform.process("b"), 1)
    assert [log(platform, domain) for domain in "abc"] == [entries] * 3
