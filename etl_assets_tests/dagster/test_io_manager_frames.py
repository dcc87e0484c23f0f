"""Frames of pandas, Polars and pyarrow as what assets return and are given: the same values and types as by
way of Spark.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from decimal import Decimal
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from etl_assets.delta.write.write_spec import WriteMode, WriteSpec
from etl_assets_tests.dagster.io_manager_lab import Lab, asset_of, failure, figures

pytestmark = [
    pytest.mark.spark,
    # Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),
]

WHOLE = WriteSpec(write_mode=WriteMode.REPLACE)
BERLIN = dt.timezone(dt.timedelta(hours=1))
AT = dt.datetime.fromisoformat("2026-03-29T02:30:00.123456")
"""An hour that no clock in Berlin showed."""
LONG_AGO = dt.datetime.fromisoformat("1900-01-01T00:00:00.000001")
MORE = {
    "small": (pa.int16(), [-32768, None]),
    "whole": (pa.int64(), [2**63 - 1, None]),
    "single": (pa.float32(), [0.1, None]),
    "double": (pa.float64(), [0.1, None]),
    "price": (pa.decimal128(38, 18), [Decimal("12345678901234567890.123456789012345678"), None]),
    "true": (pa.bool_(), [True, None]),
    "text": (pa.string(), ["Köln 🚲\u2028", None]),
    "bytes": (pa.binary(), [b"\x00\xff", None]),
    "day": (pa.date32(), [dt.date(1582, 10, 4), None]),
    "at": (pa.timestamp("us", "UTC"), [AT.replace(tzinfo=dt.UTC), LONG_AGO.replace(tzinfo=dt.UTC)]),
    "local": (pa.timestamp("us"), [AT, LONG_AGO]),
    "tags": (pa.list_(pa.string()), [["a", None], []]),
    "times": (pa.list_(pa.timestamp("us")), [[AT, None], None]),
    "inner": (
        pa.struct([("n", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("d", pa.decimal128(5, 2))]),
        [{"n": 1, "at": AT.replace(tzinfo=dt.UTC), "d": Decimal("1.50")}, None],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1), ("l", None)], []]),
}
EVERYTHING = pa.table(
    {"id": pa.array([1, 2], pa.int32())}
    | {name: pa.array(found, type_) for name, (type_, found) in MORE.items()}
)
NO_MAP = EVERYTHING.drop_columns(["map"])


def given(lab: Lab, upstream: dg.AssetsDefinition, kind: Any) -> Any:
    """What an asset is given whose parameter is annotated so."""
    seen: list[Any] = []

    def reader(mine: Any) -> None:
        seen.append(mine)

    reader.__annotations__["mine"] = kind
    assert lab.run(upstream, dg.asset(reader), selection=["reader"]).success
    return seen[0]


def upstream_of(frame: Any) -> dg.AssetsDefinition:
    return asset_of(lambda: frame, WHOLE.to_metadata())


def test_arrow_tables_are_stored_and_given_with_every_type_as_it_is(lab: Lab):
    padding = EVERYTHING.slice(1)
    sliced = pa.concat_tables([padding, EVERYTHING, padding]).combine_chunks().slice(1, 2)
    upstream = upstream_of(sliced)
    assert lab.run(upstream).success
    assert given(lab, upstream, pa.Table).sort_by("id").equals(EVERYTHING)
    assert given(lab, upstream, pl.DataFrame).sort("id").equals(pl.DataFrame(pl.from_arrow(EVERYTHING)))
    lazy = given(lab, upstream, pl.LazyFrame)
    assert lazy.select("id", "price").sort("id").collect().rows()[0] == (1, MORE["price"][1][0])
    assert given(lab, upstream, Any).select("at", "local").dtypes == [
        ("at", "timestamp"),
        ("local", "timestamp_ntz"),
    ]
    assert lab.run(upstream_of(EVERYTHING.slice(0, 0))).success
    assert given(lab, upstream, pa.Table).equals(EVERYTHING.slice(0, 0)), (
        "a frame without rows has its types as well"
    )


def test_what_an_asset_is_given_it_may_return(lab: Lab):
    """Whatever a library makes of a type, it is stored as the same type again."""
    upstream = upstream_of(NO_MAP)
    assert lab.run(upstream).success
    frames = {kind: given(lab, upstream, kind) for kind in (pd.DataFrame, pl.DataFrame, pl.LazyFrame)}
    before = lab.version_of()
    for number, frame in enumerate(frames.values()):
        assert lab.run(upstream_of(frame)).success
        assert lab.version_of() == before + number + 1
        assert given(lab, upstream, pa.Table).sort_by("id").equals(NO_MAP)
    types = frames[pd.DataFrame].dtypes
    assert (str(types["whole"]), str(types["true"])) == ("Int64", "boolean")
    assert (str(types["at"]), str(types["local"])) == ("datetime64[us, UTC]", "datetime64[us]")


def test_other_spellings_of_a_type_and_narrower_ones_are_stored_as_spark_has_them(lab: Lab):
    frame = pa.table(
        {
            "id": pa.array([1], pa.uint32()),
            "word": pa.array(["a"]).dictionary_encode(),
            "large": pa.array(["a"], pa.large_string()),
            "hash": pa.array([b"ab"], pa.binary(2)),
            "pair": pa.array([[1, 2]], pa.list_(pa.uint8(), 2)),
            "ns": pa.array([pd.Timestamp("2026-01-01T00:00:00.000001")], pa.timestamp("ns")),
            "zone": pa.array([AT.replace(tzinfo=BERLIN)], pa.timestamp("us", "Europe/Berlin")),
            "cents": pa.array([Decimal("1.5")], pa.decimal256(10, 2)),
        }
    )
    upstream = upstream_of(frame)
    assert lab.run(upstream).success
    (row,) = given(lab, upstream, pa.Table).to_pylist()
    assert row == {
        "id": 1,
        "word": "a",
        "large": "a",
        "hash": b"ab",
        "pair": [1, 2],
        "ns": dt.datetime.fromisoformat("2026-01-01T00:00:00.000001"),
        "zone": AT.replace(tzinfo=BERLIN).astimezone(dt.UTC),
        "cents": Decimal("1.50"),
    }


def test_what_pandas_calls_its_types_is_stored_as_what_the_values_are(lab: Lab):
    frame = pd.DataFrame(
        {
            "id": pd.Series([1, None, 9], dtype="Int64"),
            "arrow": pd.Series([2, None, 9], dtype="int32[pyarrow]"),
            "truth": pd.Series([True, None, True], dtype=object),
            "text": pd.Series(["a", float("nan"), "z"], dtype=object),
            "word": pd.Series(["a", None, "z"], dtype="category"),
            "number": [0.5, float("nan"), 9.0],
            "day": [dt.date(2026, 1, 1), None, dt.date(2026, 1, 9)],
            "zone": pd.Series([AT, pd.NaT, AT]).dt.tz_localize("America/New_York"),
            "lists": [[1, 2], None, [9]],
            "nothing": pd.Series([None, None, None], dtype=object),
        }
    )
    columns = (
        "id BIGINT, arrow INT, truth BOOLEAN, text STRING, word STRING, number DOUBLE, day DATE, zone"
        " TIMESTAMP,"
    )
    metadata = WHOLE.to_metadata() | {
        "delta_upsert/columns": columns + " lists ARRAY<SMALLINT>, nothing DECIMAL(5, 2)"
    }
    upstream = asset_of(lambda: frame[frame.index < 2], metadata)
    assert lab.run(upstream).success
    first, second = given(lab, upstream, pa.Table).sort_by("id").to_pylist()
    assert set(second.values()) == {None}
    assert first == {
        "id": 1,
        "arrow": 2,
        "truth": True,
        "text": "a",
        "word": "a",
        "number": 0.5,
        "day": dt.date(2026, 1, 1),
        "zone": AT.replace(tzinfo=dt.timezone(dt.timedelta(hours=-4))).astimezone(dt.UTC),
        "lists": [1, 2],
        "nothing": None,
    }
    empty = asset_of(lambda: frame[frame["number"] > 10], metadata)
    assert lab.run(empty).success
    assert given(lab, empty, pd.DataFrame).shape == (0, 10)


def test_frames_of_each_kind_are_upserted_alike(lab: Lab):
    spec = WriteSpec(keys=("id",), sequence_by="at").to_metadata()
    for number, frame in enumerate(
        (
            pd.DataFrame({"id": ["a", "b"], "at": [1, 1], "price": [Decimal("1.1"), None]}),
            pl.DataFrame(
                {"id": ["a"], "at": [2], "price": [Decimal("2.10")]},
                schema_overrides={"price": pl.Decimal(3, 2)},
            ),
            pl.LazyFrame({"id": ["b"], "at": [2]}).with_columns(price=pl.lit(None)),
            pa.table({"id": ["c"], "at": [1], "price": pa.array([Decimal("3.5")], pa.decimal128(2, 1))}),
        )
    ):
        metadata = spec | (
            {} if number else {"delta_upsert/columns": "id STRING, at BIGINT, price DECIMAL(10, 2)"}
        )
        told = figures(lab.run(asset_of(lambda frame=frame: frame, metadata)))
        assert told["inserted"] + told.get("updated", 0) == (2, 1, 1, 1)[number]
    rows = {row["id"]: (row["at"], row["price"]) for row in lab.rows_of()}
    assert rows == {"a": (2, Decimal("2.10")), "b": (2, None), "c": (1, Decimal("3.50"))}


REFUSED = [
    (pa.table({"id": [1], "t": pa.array([dt.time(1)], pa.time64("us"))}), "column t .* has the type time64"),
    (pa.table({"id": [1], "d": pa.array([1], pa.duration("s"))}), "column d .* has the type duration"),
    (pa.table({"id": [1], "u": pa.array([1], pa.uint64())}), "column u .* has the type uint64"),
    (
        pa.table({"id": [1], "n": pa.array([1], pa.timestamp("ns"))}),
        r"column n .* is timestamp\[ns\] and has a value which timestamp\[us\], .* cannot hold",
    ),
    (
        pd.DataFrame({"id": [1]}, index=pd.Index(["x"], name="key")),
        "has the index key, and an index is not stored",
    ),
    (pd.DataFrame({"id": [1], 7: [1]}), "has the column 7, whose name is no text"),
    (
        pd.DataFrame({"id": [1, 2], "mixed": ["a", 1]}),
        "column mixed .* has values that are not all of one type",
    ),
    (
        pd.DataFrame([[1, 2]]).set_axis(["id", "id"], axis=1),
        "columns that differ in nothing but case: id, id",
    ),
    (
        pl.DataFrame({"id": [1], "o": pl.Series([object()], dtype=pl.Object)}),
        "column o .* has the type Object",
    ),
    (pl.DataFrame({"id": [1], "t": [dt.time(1)]}), "column t .* has the type time64"),
    (pl.Series([1]), "the asset mine returned polars.Series"),
    ([1], "the asset mine returned list"),
]


@pytest.mark.parametrize(("frame", "said"), REFUSED, ids=[said[:24] for _, said in REFUSED])
def test_a_frame_that_would_not_stay_what_it_is_is_refused_by_name(lab: Lab, frame: Any, said: str):
    text = failure(lab.run(asset_of(lambda: frame, WriteSpec(keys=("id",)).to_metadata())))
    assert re.search(said, text), text
    assert "fix:" in text
    assert lab.version_of() == -1


def test_a_value_that_its_column_in_the_table_cannot_hold_is_refused(lab: Lab):
    assert lab.run(upstream_of(lab.spark.sql("SELECT CAST(1.5 AS DECIMAL(4, 2)) AS price"))).success
    assert lab.run(upstream_of(pd.DataFrame({"price": [Decimal("2.5"), None]}))).success
    text = failure(lab.run(upstream_of(pd.DataFrame({"price": [Decimal("2.505")]}))))
    assert "column price that the asset mine returned" in text
    assert "not exactly decimal128(4, 2) as in its table" in text
    assert sorted(str(row["price"]) for row in lab.rows_of()) == ["2.50", "None"]


def test_other_libraries_are_not_imported_by_the_manager():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import etl_assets.io_managers, sys; print({'polars', 'pandas', 'pyarrow'} & set(sys.modules))",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "set()"
