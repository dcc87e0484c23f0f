"""What chaos compares, it compares byte by byte, and it says what differs."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from etl_assets.testing.memory_store import MemoryStore
from etl_assets_tests.chaos.checks import Copy, differences
from etl_assets_tests.chaos.decks import with_a_flipped_bit
from etl_assets_tests.chaos.roots import Bucket, Disk, Root
from etl_assets_tests.chaos.troubles import (
    DAMAGES,
    EMPTIED,
    LATER,
    OLD_BACKUP,
    SERVER_KILLED,
    deck_of_faults,
    deck_of_losses,
)
from etl_assets_tests.chaos.world import World
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.reference.fault_proxy import FaultProxy
from etl_assets_tests.reference.object_store_server import ObjectStoreServer

FOLDER = "tables/events/g000001"


def entry(number: int) -> bytes:
    info = json.dumps({"commitInfo": {"operation": "WRITE"}})
    add = json.dumps({"add": {"path": f"part-{number}.parquet", "size": 4, "partitionValues": {}}})
    return f"{info}\n{add}\n".encode()


def copy(domain: str, *entries: bytes | None, data: bytes = b"rows") -> Copy:
    store = MemoryStore(domain)
    for number in range(len(entries)):
        store.put(f"{FOLDER}/part-{number}.parquet", [data])
    return Copy(table="events", domain=domain, folder=FOLDER, store=store, entries=entries)


def test_the_same_bytes_do_not_differ():
    assert list(differences(copy("a", entry(0), entry(1)), copy("b", entry(0), entry(1)))) == []


def test_the_first_version_that_differs_is_named_with_its_first_line_that_does():
    cut = entry(1).replace(b"part-1", b"part-7")
    (told,) = differences(copy("a", entry(0), entry(1), entry(2)), copy("b", entry(0), cut, entry(3)))
    assert told.startswith("events: version 1 of 3 is ")
    assert f"in b ({FOLDER}); first b'" in told
    assert "part-7" in told
    (told,) = differences(copy("a", entry(0)), copy("b", None))
    assert f"missing in b ({FOLDER})" in told


def test_a_data_file_of_the_same_size_and_other_bytes_is_named():
    (told,) = differences(copy("a", entry(0)), copy("b", entry(0), data=b"rots"))
    assert told.startswith("events: part-0.parquet (4 bytes) is ")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("with_bucket", [False, True])
def test_a_long_stay_in_a_world_sees_every_trouble_and_a_short_one_the_frequent_ones(
    tmp_path, seed, with_bucket
):
    roots: list[Root] = [Disk(name=name, path=tmp_path / name) for name in "abc"]
    if with_bucket:
        network = FaultProxy(1, random.Random(seed))
        roots[-1] = Bucket(name="c", server=ObjectStoreServer(), network=network)
        network.close()
    world = World(
        home=tmp_path, gateway=Gateway(port=0, secret=""), dice=random.Random(seed), roots=tuple(roots)
    )
    faults, losses = (
        [*itertools.islice(deck, 25)] for deck in (deck_of_faults(world), deck_of_losses(world))
    )
    assert LATER.isdisjoint([*faults[:5], *losses[:5]])
    assert set(faults) >= {fault for root in roots for fault in root.faults()}
    assert set(losses) >= {*DAMAGES, EMPTIED, OLD_BACKUP, *([SERVER_KILLED] if with_bucket else [])}


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_is_one_bit(seed):
    content = b"some bytes"
    flipped = with_a_flipped_bit(content, random.Random(seed))
    assert len(flipped) == len(content)
    assert sum((one ^ other).bit_count() for one, other in zip(content, flipped, strict=True)) == 1
