"""What is used of Dagster's private modules: in one module, compared with one version, and loaded as late as
it was.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import dagster as dg
import pytest

from etl_assets import dagster_internals, tags
from etl_assets.dagster_internals import CHECKED_VERSION
from etl_assets.jobs.compaction import UNDER_WAY

PACKAGE = Path(dagster_internals.__file__).parent
PRIVATE = re.compile(r"\b(?:dagster\w*|dg)\._\w+|\bfrom dagster\w* import _")
"""Also as a text, by which a module is imported just as well."""
WHAT_TO_DO = """Dagster is {installed}, and etl_assets/dagster_internals.py was compared with {checked}.
For each row of its table, in the new version's source: is the name still there, with the same arguments and
the same meaning? Is there a public call by now? Compare `execute_launched_run` with the body of `dagster api
execute_run`. Run etl_assets_tests/dagster and etl_assets_tests/e2e. Then set CHECKED_VERSION."""


def test_dagster_is_the_version_that_its_private_names_were_compared_with():
    installed = version("dagster")
    assert installed == CHECKED_VERSION, WHAT_TO_DO.format(installed=installed, checked=CHECKED_VERSION)


def private_names(text: str) -> list[str]:
    return PRIVATE.findall(text)


@pytest.mark.parametrize(
    "line",
    [
        "from dagster._core.events import EngineEventData",
        "import dagster._cli.api as api",
        'importlib.import_module("dagster._cli.api")',
        "from dagster import _check",
        "dg._core.events.EngineEventData",
        "from dagster_shared._record import record",
    ],
)
def test_a_private_name_is_found_however_it_is_reached(line):
    assert private_names(line)


def test_a_public_name_is_not_taken_for_a_private_one():
    assert not private_names(
        'import dagster as dg\nself._instance.dagster_run\nresolve("dagster.dagster_run")'
    )


def test_no_other_module_uses_private_names_of_dagster():
    found = {
        str(module.relative_to(PACKAGE)): names
        for module in PACKAGE.rglob("*.py")
        if (names := private_names(module.read_text("utf-8")))
    }
    assert list(found) == ["dagster_internals.py"], found


def test_the_table_names_all_that_is_imported():
    text = Path(dagster_internals.__file__).read_text("utf-8")
    table, code = text.split('"""', 2)[1:]
    modules = set(re.findall(r"(?:from|import) dagster\.(_[\w.]+)", code))
    assert len(modules) == 8
    assert [module for module in modules if f"`{module}" not in table] == []


def test_it_loads_nothing_that_dagster_itself_does_not():
    code = (
        "import sys, dagster; before = set(sys.modules); import etl_assets.dagster_internals;"
        "print(*(name for name in set(sys.modules) - before if name.split('.')[0] != 'etl_assets'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == []


def test_what_is_spelled_here_is_spelled_as_dagster_does():
    from dagster._core.storage.dagster_run import FINISHED_STATUSES
    from dagster._core.storage.tags import MAX_RETRIES_TAG

    assert tags.MAX_RETRIES == MAX_RETRIES_TAG
    assert {*UNDER_WAY, *FINISHED_STATUSES} == {*dg.DagsterRunStatus}
    assert not {*UNDER_WAY} & {*FINISHED_STATUSES}
