"""The component types are found by their names, at little cost."""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import jsonschema
import pytest
import yaml

import etl_assets
from etl_assets.components.pipeline import PipelineAttributes
from etl_assets_tests.components.dagster_project import BROKEN, FILMS, RATINGS

ROOT = Path(__file__).parents[2]
HEAVY = (
    "pyspark",
    "delta",
    "deltalake",
    "pandas",
    "pandera",
    "polars",
    "obstore",
    "pyarrow",
    "orjson",
    "dagster_dg_cli",
)


def test_the_package_names_the_module_with_its_types():
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    assert parser["options.entry_points"]["dagster_dg_cli.registry_modules"].split() == [
        "etl_assets",
        "=",
        "etl_assets",
    ]


def test_the_module_behind_the_entry_point_imports_nothing_heavy():
    code = (
        "import sys, etl_assets\n"
        "assert 'dagster' not in sys.modules\n"
        "found = {name: getattr(etl_assets, name) for name in dir(etl_assets)}\n"
        "assert {'Pipeline', 'Platform'} <= found.keys()\n"
        "assert all(hasattr(found[name], '__dg_package_entry__') for name in ('Pipeline', 'Platform'))\n"
        "assert found['Pipeline'].get_model_cls().model_json_schema()['properties']\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_another_name_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Pipelines'"):
        etl_assets.Pipelines  # noqa: B018 - the access is what is tested


@pytest.mark.parametrize("declaration", [FILMS, RATINGS, BROKEN])
def test_dagsters_own_check_finds_nothing_wrong_with_any_declaration(declaration):
    # It reads YAML by other rules: here `on` is true.
    value = yaml.safe_load(declaration)
    jsonschema.Draft202012Validator(PipelineAttributes.model_json_schema()).validate(value)


def test_editors_are_told_the_fields():
    schema = PipelineAttributes.model_json_schema()
    assert schema["properties"]["columns"]["description"]
    assert schema["$defs"]["FilesSource"]["properties"]["path"]["examples"]
    jsonschema.Draft202012Validator.check_schema(schema)
