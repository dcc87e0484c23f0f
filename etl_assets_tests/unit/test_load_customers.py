"""What a customer file is refused for before Spark reads it."""

from __future__ import annotations

import tracemalloc

import pytest

from etl_assets.errors import SourceUnreadable
from etl_assets.orders.steps.load_customers import _first_line
from etl_assets_tests.pipeline import Pipeline

HEADER = b"customer_id,customer_region\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_the_header_ends_where_spark_ends_lines(tmp_path, end):
    file = tmp_path / "customers.csv"
    file.write_bytes(end.join([b"customer_id,customer_region", b"c-1,emea", b""]))
    assert _first_line(file) == "customer_id,customer_region"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (HEADER + b"c-1,emea\n" + b"x" * (40 << 20), r"customers\.csv, line 3: it has 41,943,040 bytes"),
        (b"x" * (40 << 20), r"customers\.csv, line 1: it has 41,943,040 bytes"),
        (b"customer_id\n", r"customers\.csv, line 1: the header lacks customer_region"),
        (b"", r"line 1: the header lacks customer_id, customer_region"),
        (b"customer_id,\xff\n", r"customers\.csv cannot be read"),
    ],
    ids=["a line without end", "nothing else", "a column is missing", "empty", "no UTF-8"],
)
def test_it_is_refused_without_being_held(tmp_path, content, says):
    pipeline = Pipeline(
        root=tmp_path / "data", landing=tmp_path, session=lambda: pytest.fail("Spark started")
    )
    file = tmp_path / "_reference" / "customers.csv"
    file.parent.mkdir()
    file.write_bytes(content)
    del content
    step = pipeline.steps()["customers"]
    tracemalloc.start()
    try:
        with pytest.raises(SourceUnreadable, match=says):
            step.run([])
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()
