"""A table that is made without Spark is the one that Delta would have made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.log.entries import entry_path, read_entry
from etl_assets.delta.log.new_entry import FirstEntry
from etl_assets.delta.replicated.replication import TABLE_PROPERTIES
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import ensure_table
from etl_assets.errors import CommitConflict, ContractError
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets_tests.reference.tables import ALL_TABLES, local_domain

pytestmark = pytest.mark.spark

MIRRORED = {**TABLE_PROPERTIES, "delta.dataSkippingStatsColumns": "batch_id"}


@pytest.mark.parametrize(
    ("contract", "properties"),
    [
        *((contract, {"delta.dataSkippingStatsColumns": contract.merge_key[0]}) for contract in ALL_TABLES),
        (RAW_EVENTS, MIRRORED),
    ],
    ids=lambda given: getattr(given, "name", "mirrored" if given is MIRRORED else ""),
)
def test_the_first_entry_says_what_deltas_own_says(spark, tmp_path, contract, properties):
    from delta.tables import DeltaTable

    theirs, ours = tmp_path / "theirs", tmp_path / "it's ours"
    made = DeltaTable.create(spark).location(str(theirs)).addColumns(struct_type(contract))
    made = made.comment(contract.description).partitionedBy(*contract.delta_partition)
    for name, value in properties.items():
        made = made.property(name, value)
    made.execute()

    assert FirstEntry(contract=contract, properties=properties, user_metadata={}).put(ours)

    assert actions(ours) == actions(theirs)
    read = spark.read.format("delta").load(str(ours))
    assert read.schema == struct_type(contract)
    assert read.count() == 0


def actions(table: Path) -> dict[str, dict]:
    """What the first entry says, without what is of the moment."""
    lines = [json.loads(line) for line in entry_path(table, 0).read_text().splitlines()]
    (found,) = [{name: content for line in lines for name, content in line.items()}]
    assert len(found) == len(lines) == 3
    assert list(lines[0]) == ["commitInfo"], "Delta wants the time of a commit in the first line"
    info, metadata = found["commitInfo"], found["metaData"]
    metadata["schemaString"] = json.loads(metadata["schemaString"])
    del metadata["id"], metadata["createdTime"]
    stamped = info.get("inCommitTimestamp") == info["timestamp"]
    found["protocol"].get("writerFeatures", []).sort()
    told = ("operation", "isolationLevel", "isBlindAppend")
    return found | {"commitInfo": {name: info[name] for name in told} | {"stamped": stamped}}


def test_a_table_is_made_once_and_rows_of_deltas_writer_go_in(spark, tmp_path):
    domain = local_domain(tmp_path / "data")
    table = Table(name="raw_events", domain=domain, contract=RAW_EVENTS)
    assert table.version() == -1
    assert ensure_table(table) == 0
    first = entry_path(table.path, 0).read_bytes()
    assert ensure_table(table) == 0
    assert entry_path(table.path, 0).read_bytes() == first
    assert read_entry(table.path, 0).user_metadata["writer"]

    spark.createDataFrame([], struct_type(RAW_EVENTS)).write.format("delta").mode("append").save(
        str(table.path)
    )
    spark.sql(f"OPTIMIZE delta.`{table.path}`")
    assert (
        spark.sql(f"DESCRIBE DETAIL delta.`{table.path}`").collect()[0].description == RAW_EVENTS.description
    )


def test_a_place_that_spark_would_rewrite_is_refused_before_there_is_a_table(tmp_path):
    domain = local_domain(tmp_path / "${env:HOME}")
    table = Table(name="raw_events", domain=domain, contract=RAW_EVENTS)
    with pytest.raises(ContractError, match="variable"):
        ensure_table(table)
    assert not domain.root.exists()


def test_a_first_entry_that_another_machine_was_quicker_with_is_not_taken_for_ours(tmp_path, monkeypatch):
    table = Table(name="raw_events", domain=local_domain(tmp_path), contract=RAW_EVENTS)
    put = FirstEntry.put

    def late(entry: FirstEntry, path: Path) -> bool:
        assert put(replace(entry, user_metadata={"writer": "another machine"}), path)
        return put(entry, path)

    monkeypatch.setattr(FirstEntry, "put", late)
    with pytest.raises(CommitConflict):
        ensure_table(table)
    assert read_entry(table.path, 0).user_metadata == {"writer": "another machine"}
    assert ensure_table(table) == 0
