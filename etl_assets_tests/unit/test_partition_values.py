"""One spelling of partition values, in entries and in folders, whichever writer it is."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.log.partition_values import as_text, day_of, folder_of, values_in, with_zone
from etl_assets.delta.read.key_index import KeyIndex, hashes_of
from etl_assets.delta.read.rows import folders_spell_partitions
from etl_assets.delta.table import Table
from etl_assets.delta.write.content import content_of, one_of, rows_kept
from etl_assets.delta.write.records import commit_rows, read_files
from etl_assets.delta.write.replacement import Replacement, replace_contents
from etl_assets.errors import ContractError, InputError
from etl_assets_tests.reference.tables import local_domain

AT = dt.datetime(2026, 1, 5, 10, 30, 0, 5, tzinfo=dt.UTC)
PARTS = TableContract(
    name="parts",
    description="A part in a partition of every type.",
    columns=(
        Column("part_id", "STRING", "Its id."),
        Column("city", "STRING", "Where.", nullable=True),
        Column("is_new", "BOOLEAN", "New.", nullable=True),
        Column("price", "DECIMAL(10,2)", "Price.", nullable=True),
        Column("made_at", "TIMESTAMP", "When.", nullable=True),
        Column("number", "BIGINT", "How many.", nullable=True),
    ),
    merge_key=("part_id",),
    delta_partition=("city", "is_new", "made_at", "number"),
    append_only=True,
)


def part(city: str | None = "Köln", **fields: object) -> dict[str, object]:
    values = {"is_new": True, "price": Decimal("1.50"), "made_at": AT, "number": 7}
    return {"part_id": "p", "city": city, **values, **fields}


NOTHING = part(city=None, is_new=None, price=None, made_at=None, number=None)


@pytest.mark.parametrize(
    ("value", "text", "folder"),
    [
        (None, None, "c=__HIVE_DEFAULT_PARTITION__"),
        ("", None, "c=__HIVE_DEFAULT_PARTITION__"),
        ("Köln a/b=%", "Köln a/b=%", "c=Köln a%2Fb%3D%25"),
        (True, "true", "c=true"),
        (7, "7", "c=7"),
        (Decimal("1E+2"), "100", "c=100"),
        (dt.date(2026, 1, 5), "2026-01-05", "c=2026-01-05"),
        (AT, "2026-01-05T10:30:00.000005Z", "c=2026-01-05T10%3A30%3A00.000005Z"),
        (AT.replace(tzinfo=None), "2026-01-05 10:30:00.000005", "c=2026-01-05 10%3A30%3A00.000005"),
    ],
)
def test_a_value_has_one_spelling(value, text, folder):
    assert as_text(value) == text
    assert folder_of({"c": text}, ["c"]) == folder
    assert dict(values_in([folder])) == {"c": text}


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_a_folder_says_the_value_whatever_is_in_it(text):
    folder = folder_of({"c": text}, ["c"])
    assert "/" not in folder
    assert dict(values_in([folder])) == {"c": text}


def test_a_time_without_its_zone_is_utc_and_what_is_no_value_of_a_partition_is_refused():
    assert with_zone("2026-01-05 10:30:00") == "2026-01-05T10:30:00.000000Z"
    assert with_zone(None) is None
    with pytest.raises(ContractError, match="list"):
        as_text([1])
    with pytest.raises(InputError, match="'yesterday'"):
        day_of("yesterday", table="parts")


@pytest.fixture
def parts(tmp_path):
    table = Table(name="parts", domain=local_domain(tmp_path), contract=PARTS)
    commit_rows(table, [part(), part("a/b"), NOTHING], base_version=-1)
    return table


def rows(table: Table) -> list[dict]:
    found = DeltaTable(str(table.path)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: str(row["city"]))


def test_rows_without_spark_lie_where_spark_would_look_for_them(parts):
    assert rows(parts) == [part(), NOTHING, part("a/b")]
    folders = {path.name for path in parts.path.iterdir()}
    assert {"city=Köln", "city=a%2Fb", "city=__HIVE_DEFAULT_PARTITION__"} <= folders
    (added,) = [
        action["add"]["partitionValues"]
        for line in entry_path(parts.path, 1).read_text().splitlines()
        if (action := json.loads(line)).get("add", {}).get("partitionValues", {}).get("city") == "Köln"
    ]
    assert (added["is_new"], added["made_at"]) == ("true", "2026-01-05T10:30:00.000005Z")


def test_partitions_are_the_same_when_files_go_and_come_back_and_rows_are_kept(parts):
    before = content_of(parts.snapshot())
    files = tuple(before.values())
    kept = tuple(rows_kept(parts.path, file, one_of("part_id", {"p"})) for file in files)
    replace_contents([Replacement(table=parts, base_version=1, removed=files)])
    replace_contents([Replacement(table=parts, base_version=2, restored=files)])
    assert rows(parts) == [part(), NOTHING, part("a/b")]
    back = tuple(content_of(parts.snapshot()).values())
    replace_contents([Replacement(table=parts, base_version=3, removed=back, kept=kept)])
    assert rows(parts) == [part(), NOTHING, part("a/b")]
    partitions = [
        sorted(map(str, (dict(each.partition) for each in files))),
        sorted(str(dict(each.partition)) for each in content_of(parts.snapshot()).values()),
    ]
    assert partitions[0] == partitions[1]


def test_files_in_folders_that_spell_another_partition_are_left_to_delta_to_read(parts):
    snapshot = parts.snapshot()
    assert snapshot is not None
    assert folders_spell_partitions(snapshot, list(snapshot.files()))
    # As another program lays them out, or an older release a word with letters of other alphabets.
    (parts.path / "city=Köln").rename(parts.path / "city=K%C3%B6ln")
    entry = entry_path(parts.path, 1)
    entry.write_text(entry.read_text().replace("city=K%C3%B6ln", "city=K%25C3%25B6ln"))
    snapshot = parts.snapshot()
    assert snapshot is not None
    files = list(snapshot.files())
    assert not folders_spell_partitions(snapshot, files)
    assert folders_spell_partitions(snapshot, [file for file in files if "ln/" not in file])
    assert rows(parts) == [part(), NOTHING, part("a/b")]


def test_the_index_names_a_partition_that_is_no_day(tmp_path):
    contract = TableContract(
        name="events",
        description="Events by day.",
        columns=(
            Column("event_id", "STRING", "Id."),
            Column("partition_date", "DATE", "Day.", nullable=True),
        ),
        merge_key=("event_id",),
        delta_partition=("partition_date",),
        append_only=True,
    )
    table = Table(name="events", domain=local_domain(tmp_path), contract=contract)
    days = [dt.date(2026, 1, 5), None]
    commit_rows(table, [{"event_id": str(day), "partition_date": day} for day in days], base_version=-1)
    with pytest.raises(InputError, match="events has rows in the partition None"):
        KeyIndex(table, "event_id").find(hashes_of(pa.chunked_array([["x"]])), 1)


def test_times_without_a_zone_stay_so_and_nanoseconds_are_refused_by_name(tmp_path):
    naive = AT.replace(tzinfo=None)
    pq.write_table(pa.table({"at": pa.array([naive], pa.timestamp("us"))}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), tmp_path / "b.parquet")

    def read(name: str) -> list[dict]:
        from etl_assets.delta.write.content import StoredFile

        file = StoredFile(name=name, partition={}, size=1, modified=0, rows=1, statistics={})
        return list(read_files(tmp_path, [file]))

    assert read("a.parquet") == [{"at": naive}]
    with pytest.raises(InputError, match="the column at of a data file has nanoseconds"):
        read("b.parquet")
