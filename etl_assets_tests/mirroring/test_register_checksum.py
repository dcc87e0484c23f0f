"""A register in which a bit is flipped cannot be read: it does not count, stops nobody, and is named and
replaced.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from etl_assets.errors import MirrorError, ReplicaCorrupt
from etl_assets.mirroring.protocol.chain import GENESIS
from etl_assets.mirroring.protocol.epochs import Epoch
from etl_assets.mirroring.protocol.locator import Locator, ReplicaConfig, Role
from etl_assets.mirroring.protocol.record import Record, State
from etl_assets.mirroring.protocol.record_codec import decode, encode
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.testing.memory_store import MemoryStore
from etl_assets_tests.mirroring.platform import Platform, Process
from etl_assets_tests.reference import three_domains
from etl_assets_tests.reference.three_domains import TABLE, A, B, C

KEY = "register/events.json"


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def led_by_a() -> Platform:
    platform = Platform({domain: MemoryStore(domain) for domain in "abc"})
    platform.bootstrap()
    leader = platform.process("a")
    leader.commit(leader.commit())
    return platform


def store_of(platform: Platform, domain: str) -> MemoryStore:
    store = platform.stores[domain]
    assert isinstance(store, MemoryStore)
    return store


def register_of(platform: Platform, domain: str) -> bytes:
    return store_of(platform, domain).files[KEY]


def test_no_single_flipped_bit_is_read_as_a_register():
    content = register_of(led_by_a(), "b")
    assert decode(content, domain="b", key=KEY).accepted is not None
    for bit in range(len(content) * 8):
        with pytest.raises(ReplicaCorrupt, match=f"the register b: {KEY} cannot be read"):
            decode(flipped(content, bit), domain="b", key=KEY)


@pytest.mark.parametrize("domain", ["a", "c"])
def test_whatever_bit_is_flipped_in_one_of_three_registers_the_table_goes_on(domain):
    platform = led_by_a()
    whole = {each: dict(store_of(platform, each).files) for each in "abc"}
    for bit in range(0, len(whole[domain][KEY]) * 8, 7):
        for each in "abc":
            store_of(platform, each).files = dict(whole[each])
        store_of(platform, domain).files[KEY] = flipped(whole[domain][KEY], bit)
        # The leading domain cannot go on without its own register; another one can.
        before = platform.process("b").reading.acknowledged().version
        after = platform.process("b" if domain == "a" else "a").commit()
        assert (before, after.version) == (1, 2)
        assert platform.process("b").reading.bind().version == 2


@pytest.mark.parametrize("domain", ["b", "c"])
def test_a_register_with_a_flipped_bit_is_named_and_replaced(domain):
    platform = led_by_a()
    store = store_of(platform, domain)
    store.files[KEY] = flipped(store.files[KEY], 8 * store.files[KEY].index(b'"version"') + 8 * 10)
    leader = platform.process("a")
    named = leader.membership.unreadable()
    assert list(named) == [domain]
    assert f"the register {domain}: {KEY} cannot be read (its checksum does not fit: " in named[domain]
    leader.membership.remove(domain)
    leader.membership.add(domain, remake=True)
    leader.membership.promote(domain)
    assert leader.membership.unreadable() == {}
    assert platform.process(domain).reading.bind().domain == domain


def test_the_commands_name_a_register_with_a_flipped_bit_and_replace_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    placement = three_domains.named_domains(tmp_path, dict.fromkeys((A, B, C), "voter"))
    placement.place(PlacementClass.INGEST)
    three_domains.commit(placement, A)
    register = three_domains.root_of(placement, B) / "register" / f"{TABLE}.json"
    content = register.read_bytes()
    # An address that another platform could have: it stopped the table in every domain.
    register.write_bytes(flipped(content, 8 * content.index(b'"uri":"') + 8 * 12))
    verified = command("tables", "verify", TABLE)
    assert verified.returncode == 1
    assert (
        f"{TABLE} in {B}: the register {B}: register/{TABLE}.json cannot be read (its checksum"
        in verified.stdout
    )
    assert f"{TABLE} in {A}: whole" in verified.stdout
    assert three_domains.commit(placement, A) == 1
    repaired = command("tables", "repair", TABLE)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert f"{TABLE} in {B}: the register {B}" in repaired.stdout
    verified = command("tables", "verify", TABLE)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert f"{TABLE} in {B}: whole" in verified.stdout


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "etl_assets.cli.main", *arguments], capture_output=True, text=True, check=False
    )


def test_a_register_from_before_there_were_checksums_is_read_and_gains_one_with_the_next_write():
    platform = led_by_a()
    for domain in "abc":
        store = store_of(platform, domain)
        document = json.loads(store.files[KEY])
        del document["sha256"]
        document["format"] = 1
        store.files[KEY] = json.dumps(document, separators=(",", ":")).encode()
    process = Process(platform, "b")
    assert process.reading.bind().version == 1
    assert process.commit().version == 2
    assert {"sha256" in json.loads(register_of(platform, domain)) for domain in "abc"} == {True}


def test_a_register_with_a_checksum_and_the_format_of_before_is_none():
    content = register_of(led_by_a(), "a")
    with pytest.raises(MirrorError, match="cannot be read"):
        decode(content.replace(b'"format":3', b'"format":1'), domain="a", key=KEY)


def test_a_register_that_lost_its_checksum_is_none():
    document = json.loads(register_of(led_by_a(), "a"))
    del document["sha256"]
    with pytest.raises(MirrorError, match="cannot be read"):
        decode(json.dumps(document, separators=(",", ":")).encode(), domain="a", key=KEY)


def test_equal_records_have_equal_registers():
    replica = ReplicaConfig(domain="a", uri="/a", role=Role.VOTER, incarnation="1")
    locator = Locator(generation=1, one_copy=False, replicas=(replica,))
    state = State(epoch=Epoch(1, "a"), version=0, chain=GENESIS, locator=locator)
    record = Record(table="events", incarnation="1", promised=Epoch(1, "a"), accepted=state)
    assert encode(record) == encode(replace(record))
