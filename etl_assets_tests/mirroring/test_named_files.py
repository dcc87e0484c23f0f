"""Which files a log entry brings along."""

from __future__ import annotations

import json

import pytest

from etl_assets.errors import ReplicaCorrupt
from etl_assets.mirroring.protocol.named_files import NamedFile, files_named, files_removed


def entry(*actions: dict) -> bytes:
    return "\n".join(json.dumps(action) for action in actions).encode()


def test_added_and_change_files_come_with_their_sizes_and_their_paths_decoded():
    named = files_named(
        entry(
            {"commitInfo": {}},
            {"add": {"path": "day=2024-01-01%2010/part-1.parquet", "size": 10}},
            {"cdc": {"path": "_change_data/cdc-1.parquet", "size": 5}},
            {"remove": {"path": "part-0.parquet"}},
        )
    )
    assert named == (
        NamedFile("day=2024-01-01 10/part-1.parquet", 10),
        NamedFile("_change_data/cdc-1.parquet", 5),
    )


def test_a_deletion_vector_comes_with_the_file_it_is_for():
    # The example of the Delta protocol's text: a prefix, then the id in Base85.
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    named = files_named(entry({"add": {"path": "part-1.parquet", "size": 10, "deletionVector": vector}}))
    file = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert named == (NamedFile("part-1.parquet", 10), NamedFile(file, 52, exact=False))


def test_a_vector_inside_the_entry_is_no_file():
    vector = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"}
    named = files_named(entry({"add": {"path": "part-1.parquet", "size": 10, "deletionVector": vector}}))
    assert named == (NamedFile("part-1.parquet", 10),)


def test_the_size_of_a_file_of_vectors_is_a_least():
    assert NamedFile("v.bin", 52, exact=False).fits(100)
    assert not NamedFile("v.bin", 52, exact=False).fits(51)
    assert not NamedFile("p.parquet", 52).fits(100)
    assert not NamedFile("p.parquet", 52).fits(None)


def test_removed_files_are_known_by_their_paths():
    assert files_removed(entry({"remove": {"path": "a%20b"}}, {"add": {"path": "c", "size": 1}})) == {"a b"}


@pytest.mark.parametrize("path", ["/data/part-1", "s3://bucket/part-1", "../part-1", "file:/part-1"])
def test_an_entry_that_names_files_outside_of_its_table_is_refused(path):
    with pytest.raises(ReplicaCorrupt, match="outside of its table"):
        files_named(entry({"add": {"path": path, "size": 1}}))


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"add": {}}', b'{"add": null}', b"\xff\xfe"])
def test_an_entry_that_is_none_is_refused(content):
    with pytest.raises(ReplicaCorrupt):
        files_named(content)
