"""`etl-assets pipelines validate` with Spark's analyzer."""

from __future__ import annotations

import json
import logging
import logging.config

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException

from etl_assets.cli.pipelines import pipelines
from etl_assets.resources.spark import SparkResource

DECLARATION = """
name: suppliers
source: {type: files, path: "in/*.csv"}
columns: {id: bigint, country: string}
transforms:
  - {type: filter, where: "countri = 'DE'"}
  - {type: sql, select: "select id, country from input"}
  - {type: map, columns: {longer: {expression: "length(country) + 1", type: bigint}}}
  - {type: sql, select: "drop table input"}
table: {write_mode: apply_changes, keys: [id],
  apply_as_deletes: "countri = 'D'",
  apply_as_truncates: "id"}
"""


def test_every_transform_that_spark_cannot_analyze_is_a_problem_with_its_line(tmp_path, monkeypatch, spark):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    monkeypatch.setattr(SparkResource, "spark_session", spark)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "suppliers.yaml").write_text(DECLARATION)
    found = CliRunner().invoke(pipelines, ["validate", "--json"])
    assert found.exit_code == 1, found.output
    (file,) = json.loads(found.stdout)
    problems = {problem["line"]: problem for problem in file["problems"]}
    assert sorted(problems) == [6, 7, 9, 11, 12]
    assert "country" in problems[6]["fix"]
    assert (problems[11]["field"], problems[12]["field"]) == (
        "table.apply_as_deletes",
        "table.apply_as_truncates",
    )
    assert "country" in problems[11]["fix"]
    assert "bigint, not true or false" in problems[12]["message"]
    assert "_offset" in problems[7]["message"] + problems[7]["fix"]
    assert all("Did you mean" not in problem["message"] for problem in problems.values()), "the fix says so"
    assert not problems[11]["message"].startswith("table."), "the field says so"


@pytest.mark.parametrize("statement", ["select nothing", "select 1 / (id - id) from range(1)"])
def test_an_error_of_spark_is_raised_and_not_logged_too(spark, statement):
    """PySpark would log it with a stack of Java's, and with values of rows."""
    # As uvicorn does. It enables loggers again that were disabled.
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
    records: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Kept()
    loggers = [logging.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with pytest.raises(PySparkException):
            spark.sql(statement).collect()
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    assert records == []
