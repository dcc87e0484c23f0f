"""`etl-assets pipelines validate` with Spark's analyzer."""

from __future__ import annotations

import json

from click.testing import CliRunner

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
