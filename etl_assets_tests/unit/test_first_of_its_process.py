"""A step may be the first of its process that needs Spark: it asks for the session before it makes any column
of Spark's.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, Pipeline
from etl_assets_tests.reference.tables import local_domain
from etl_assets_tests.reference.written_tables import write_table

TABLES = ("customers", "normalized_orders", "warehouse_rows", "dead_letters", "audit_log")
"""Those whose steps start Spark however few rows they read."""


class SessionAskedFor(Exception):
    """A step has asked for the session, as it should."""


def _no_session() -> NoReturn:
    raise SessionAskedFor


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Inputs of every step, in a process without Spark."""
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    domain = local_domain(tmp_path / "data")
    for name in ("raw_events", "raw_events_exceptions", "normalized_orders", "warehouse_rows"):
        write_table(domain, name, [{"partition_date": DAY, "batch_id": 0}])
    reference = tmp_path / "landing" / "_reference"
    reference.mkdir(parents=True)
    (reference / "customers.csv").write_text("customer_id,customer_region\n1,EU\n", "utf-8")
    return Pipeline(root=tmp_path / "data", landing=tmp_path / "landing", session=_no_session)


@pytest.mark.parametrize("mode", list(ReadMode))
@pytest.mark.parametrize("table", TABLES)
def test_a_step_asks_for_its_session_first(pipeline: Pipeline, table: str, mode: ReadMode):
    with pytest.raises(SessionAskedFor):
        pipeline.run([DAY], mode=mode, only=[table])
