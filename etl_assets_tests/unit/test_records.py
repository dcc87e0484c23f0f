"""Tables that the platform keeps for itself, read without Spark."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq

from etl_assets.delta.write.content import StoredFile
from etl_assets.delta.write.records import read_files


def test_times_that_spark_wrote_in_its_old_form_when_it_compacted_are_the_same(tmp_path):
    at = dt.datetime(2026, 1, 5, 10, 30, tzinfo=dt.UTC)
    rows = pa.table({"at": pa.array([at], pa.timestamp("us", tz="UTC"))})
    pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    file = StoredFile(name="a.parquet", partition={}, size=1, modified=0, rows=1, statistics={})
    assert list(read_files(tmp_path, [file])) == [{"at": at}]
