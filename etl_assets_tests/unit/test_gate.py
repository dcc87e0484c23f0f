"""What a Spark user gives a table is kept to by every write of the platform's own, or refused by name before
anything is written.
"""

from __future__ import annotations

import datetime as dt
import json
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.log.gate import Access, allows, expect
from etl_assets.delta.maintenance.vacuum import DEFAULT_RETENTION, find_unneeded
from etl_assets.delta.read.key_index import KeyIndex, hashes_of
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.table import Table
from etl_assets.delta.write.append import can_write_files
from etl_assets.delta.write.records import commit_rows
from etl_assets.delta.write.replacement import Replacement, replace_contents
from etl_assets.errors import FeatureUnsupported
from etl_assets.placement.domains import FailureDomain
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table
from etl_assets.undo.plan import plan_days, plan_restore
from etl_assets_tests.reference.written_tables import write_table

DAY = dt.date(2026, 3, 1)


def vector(*hidden: int) -> dict[str, object]:
    """A deletion vector within the entry itself, as the protocol has it: a bitmap array, in Z85."""
    bitmap = struct.pack("<II", 12346, 1) + struct.pack("<HHI", 0, len(hidden) - 1, 16)
    bitmap += b"".join(struct.pack("<H", row) for row in hidden)
    content = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    words = struct.unpack(f">{len(content) // 4 + 1}I", content + bytes(4 - len(content) % 4))
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    text = "".join(letters[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(content),
        "cardinality": len(hidden),
    }


ON = {
    "deletionVectors": {"delta.enableDeletionVectors": "true"},
    "changeDataFeed": {"delta.enableChangeDataFeed": "true"},
    "columnMapping": {"delta.columnMapping.mode": "name"},
    "checkConstraints": {"delta.constraints.later": "batch_id > 0"},
    "appendOnly": {"delta.appendOnly": "true"},
}
OF_READERS = ("deletionVectors", "columnMapping", "typeWidening", "v2Checkpoint")
FEATURES = (
    *ON,
    "rowTracking",
    "clustering",
    "typeWidening",
    "v2Checkpoint",
    "icebergCompatV2",
    "notKnownYet",
)


@pytest.fixture
def domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailureDomain:
    """A platform with a row of one day in each of some tables, two versions of each."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "platform.yaml").write_text("{start_date: 2026-01-01, runs: {lock_wait_seconds: 1}}")
    domain = load_settings().placement().domains[0]
    for batch in range(2):
        for name in ("raw_events", "normalized_orders", "warehouse_rows"):
            row = {
                "partition_date": DAY,
                "batch_id": batch,
                "event_id": f"e{batch}",
                "offset": batch,
                "raw_offset": batch,
            }
            write_table(domain, name, [row])
    return domain


def give(table: Table, *features: str, off: bool = False, version: tuple[int, int] | None = None) -> None:
    """A commit of a Spark user: the protocol gets some features, and they are switched on."""
    newest = table.version()
    actions = [
        action
        for each in range(newest + 1)
        for line in entry_path(table.path, each).read_text().splitlines()
        if "metaData" in (action := json.loads(line))
    ]
    metadata = actions[-1]
    for feature in () if off else features:
        metadata["metaData"]["configuration"] |= ON.get(feature, {})
    if "columnMapping" in features:
        map_columns(metadata["metaData"])
    readers = [feature for feature in features if feature in OF_READERS]
    protocol = {
        "minReaderVersion": 3 if readers else 1,
        "minWriterVersion": 7,
        "writerFeatures": list(features),
        **({"readerFeatures": readers} if readers else {}),
    }
    if version is not None:
        protocol = {"minReaderVersion": version[0], "minWriterVersion": version[1]}
    commit_actions(table, {"protocol": protocol}, metadata)


def map_columns(metadata: dict) -> None:
    """Give every column the name in data files that it has."""
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], start=1):
        field["metadata"] |= {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": field["name"],
        }
    metadata["schemaString"] = json.dumps(schema)


def commit_actions(table: Table, *actions: dict) -> None:
    info = {"commitInfo": {"timestamp": 1, "operation": "SET TBLPROPERTIES"}}
    lines = "".join(json.dumps(action) + "\n" for action in (info, *actions))
    entry_path(table.path, table.version() + 1).write_text(lines)


def delete_a_row(table: Table) -> None:
    """What DELETE does with deletion vectors: the newest file again, with a vector."""
    version = table.version()
    found = None
    for each in range(version + 1):
        for line in entry_path(table.path, each).read_text().splitlines():
            found = json.loads(line).get("add", found)
    assert found is not None
    remove = {
        "path": found["path"],
        "deletionTimestamp": 1,
        "dataChange": True,
        "partitionValues": found["partitionValues"],
    }
    commit_actions(
        table, {"remove": remove}, {"add": {**found, "deletionVector": vector(0), "dataChange": True}}
    )


def tables(domain: FailureDomain, *names: str) -> list[Table]:
    return [platform_table(name, domain) for name in names]


def newest(table: Table) -> Snapshot:
    snapshot = table.snapshot()
    assert snapshot is not None
    return snapshot


def restore_by_command(name: str, version: int) -> subprocess.CompletedProcess[str]:
    words = ["tables", "restore", name, "--to-version", str(version), "--yes", "--no-run"]
    return subprocess.run(
        [sys.executable, "-m", "etl_assets.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
    )


def test_restoring_rows_that_a_deletion_vector_hides_says_what_is_in_the_way(domain):
    (warehouse,) = tables(domain, "warehouse_rows")
    give(warehouse, "deletionVectors")
    delete_a_row(warehouse)
    done = restore_by_command("warehouse_rows", 1)
    assert done.returncode != 0
    assert (
        "the table warehouse_rows at version 3 cannot be restored or reprocessed: it uses deletionVectors"
        in done.stderr
    )
    assert "DROP FEATURE deletionVectors, or use Delta's own RESTORE" in done.stderr
    assert "nothing to do" not in done.stdout
    assert warehouse.version() == 3


def test_a_command_does_not_build_on_a_log_that_lost_the_commit_of_the_one_before(domain):
    (warehouse,) = tables(domain, "warehouse_rows")
    assert restore_by_command("warehouse_rows", 0).returncode == 0
    theirs = entry_path(warehouse.path, 2).with_name("theirs")
    theirs.write_text(json.dumps({"commitInfo": {"timestamp": 1, "operation": "OPTIMIZE"}}) + "\n")
    theirs.replace(entry_path(warehouse.path, 2))
    done = restore_by_command("warehouse_rows", 0)
    assert done.returncode != 0
    assert (
        "version 2 of the table warehouse_rows was acknowledged and is not in its log any more" in done.stderr
    )
    assert "backup" in done.stderr, "it took files out, so that it is not put back"
    assert warehouse.version() == 2


@pytest.mark.parametrize("feature", FEATURES)
def test_an_undo_names_the_feature_of_the_table_or_of_one_after_it_and_writes_nothing(domain, feature):
    normalized, warehouse = tables(domain, "normalized_orders", "warehouse_rows")
    everywhere = lambda name: domain  # noqa: E731
    undo = plan_days(everywhere, ["normalized_orders"], [DAY])
    give(warehouse, feature)
    with pytest.raises(FeatureUnsupported, match=rf"warehouse_rows .*{feature}"):
        plan_restore(everywhere, "warehouse_rows", 0)
    with pytest.raises(FeatureUnsupported, match=rf"warehouse_rows .*{feature}"):
        plan_days(everywhere, ["normalized_orders"], [DAY])
    removed = undo.tables[1].replacement.removed
    with pytest.raises(FeatureUnsupported, match=feature):
        replace_contents(
            [
                Replacement(table=normalized, base_version=1),
                Replacement(table=warehouse, base_version=2, removed=removed),
            ]
        )
    assert (normalized.version(), warehouse.version()) == (1, 2), (
        "no table is written before all are asked about"
    )


def test_rows_that_a_deletion_vector_hides_are_not_counted(domain):
    (warehouse,) = tables(domain, "warehouse_rows")
    give(warehouse, "deletionVectors")
    assert newest(warehouse).row_count() == 2
    delete_a_row(warehouse)
    assert newest(warehouse).row_count() == 1
    assert newest(warehouse).rows_by("partition_date") == {(DAY.isoformat(),): 1}


def test_an_older_version_with_a_feature_that_is_gone_by_now_is_not_restored(domain):
    (warehouse,) = tables(domain, "warehouse_rows")
    give(warehouse, "deletionVectors")
    delete_a_row(warehouse)
    give(warehouse, version=(1, 2))
    with pytest.raises(FeatureUnsupported, match=r"at version 3 .*deletionVectors"):
        plan_restore(lambda name: domain, "warehouse_rows", 3)


@pytest.mark.parametrize("feature", FEATURES)
def test_writes_that_have_deltas_writer_beside_them_leave_the_table_to_it(domain, feature):
    (warehouse,) = tables(domain, "warehouse_rows")
    give(warehouse, feature)
    snapshot = newest(warehouse)
    assert not can_write_files(warehouse, snapshot, Access.REPLACE)
    may_add = feature == "appendOnly"
    assert allows(snapshot, Access.APPEND) == may_add
    assert allows(snapshot, Access.COMPACT) == may_add


@pytest.mark.parametrize("feature", FEATURES)
def test_rows_without_spark_are_refused_by_name(domain, feature):
    table = platform_table("replays", domain)
    assert table.contract is not None
    kinds = {
        "STRING": "x",
        "BIGINT": 1,
        "INT": 1,
        "TIMESTAMP": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "BOOLEAN": True,
        "DATE": DAY,
    }
    row = {column.name: kinds.get(column.type) for column in table.contract.columns}
    commit_rows(table, [row], base_version=-1)
    give(table, feature)
    files = sorted(table.path.rglob("*.parquet"))
    with pytest.raises(
        FeatureUnsupported, match=rf"replays at version 2 cannot be written without Spark.*{feature}"
    ):
        commit_rows(table, [row], base_version=2)
    assert table.version() == 2
    assert sorted(table.path.rglob("*.parquet")) == files


@pytest.mark.parametrize(
    ("feature", "refused"),
    [
        ("deletionVectors", True),
        ("v2Checkpoint", True),
        ("icebergCompatV2", True),
        ("notKnownYet", True),
        ("columnMapping", False),
        ("rowTracking", False),
        ("changeDataFeed", False),
    ],
)
def test_a_vacuum_refuses_features_that_name_more_than_data_files(domain, feature, refused):
    (warehouse,) = tables(domain, "warehouse_rows")
    give(warehouse, feature)
    now = dt.datetime.now(dt.UTC)
    if refused:
        with pytest.raises(FeatureUnsupported, match=f"cannot be vacuumed: it uses {feature}"):
            find_unneeded(warehouse, DEFAULT_RETENTION, now)
    else:
        assert [len(each) for each in find_unneeded(warehouse, DEFAULT_RETENTION, now)] == [0]


def test_the_index_of_keys_refuses_columns_of_other_names_and_takes_hidden_rows_along(domain):
    (raw,) = tables(domain, "raw_events")
    index, key = KeyIndex(raw, "event_id"), hashes_of(pa.chunked_array([["e1"]]))
    give(raw, "deletionVectors")
    assert index.find(key, 2).days == [DAY]
    give(raw, "columnMapping")
    with pytest.raises(FeatureUnsupported, match=r"raw_events at version 3 cannot be indexed.*columnMapping"):
        index.find(key, 3)


def test_a_feature_that_is_supported_and_switched_off_is_in_nobodys_way(domain):
    (warehouse,) = tables(domain, "warehouse_rows")
    give(warehouse, "appendOnly", "invariants", "changeDataFeed", "checkConstraints", off=True)
    for access in Access:
        expect("warehouse_rows", newest(warehouse), access)
    give(warehouse, version=(2, 6))
    for access in Access:
        expect("warehouse_rows", newest(warehouse), access)


def test_a_feature_that_is_there_by_the_protocols_version_and_in_use_is_seen(domain):
    (warehouse,) = tables(domain, "warehouse_rows")
    give(warehouse, "changeDataFeed", version=(1, 4))
    with pytest.raises(FeatureUnsupported, match="changeDataFeed"):
        expect("warehouse_rows", newest(warehouse), Access.UNDO)
