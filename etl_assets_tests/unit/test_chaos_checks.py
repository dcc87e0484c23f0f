"""What chaos compares, it compares byte by byte, and it says what differs."""

from __future__ import annotations

import json

from etl_assets.testing.memory_store import MemoryStore
from etl_assets_tests.chaos.checks import Copy, differences

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
