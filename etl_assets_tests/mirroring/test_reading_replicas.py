"""Rows of a mirrored table as people read them: of acknowledged versions alone, from a replica that is
there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

import etl_assets
from etl_assets.observability.table_states import table_states
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets_tests.reference.mirrored_rows import commit_customers, publish_unacknowledged
from etl_assets_tests.reference.three_domains import A, B, C, named_domains, root_of, three_domains
from etl_assets_tests.reference.written_tables import NOON

COUNT = "select count(*) as n, count(distinct customer_id) as ids from customers"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


def etl_assets_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "etl_assets.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ, timeout=60)


def answered(*arguments: str) -> Any:
    done = etl_assets_command(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_was_published_and_not_acknowledged_is_read_by_nobody_also_with_a_root_gone(home):
    placement = three_domains(home)
    version = commit_customers(placement, A, ["a", "b"])
    publish_unacknowledged("customers", placement)

    assert answered("sql", COUNT) == [{"n": 2, "ids": 2}]
    told = answered("tables", "path", "customers")
    assert (told["version"], told["domain"]) == (version, A)
    assert told["uri"].startswith(str(root_of(placement, A)))
    opened = etl_assets.open_table("customers")
    assert len(opened.pandas()) == opened.dataset().count_rows() == opened.polars().collect().height == 2
    assert opened.delta().count() == 2

    shutil.rmtree(root_of(placement, A))
    assert answered("sql", COUNT) == [{"n": 2, "ids": 2}]
    told = answered("tables", "path", "customers")
    assert (told["version"], told["domain"]) == (version, B)
    assert told["uri"].startswith(str(root_of(placement, B)))

    # Whoever leads next has what is in its log acknowledged: from then on it is read.
    relocated = etl_assets_command("tables", "relocate", "customers", "--to", B)
    assert relocated.returncode == 0, relocated.stderr
    assert answered("sql", COUNT) == [{"n": 4, "ids": 2}]

    shutil.rmtree(root_of(placement, B))
    for command in (("sql", COUNT), ("tables", "path", "customers")):
        refused = etl_assets_command(*command)
        assert refused.returncode == 1
        assert refused.stderr.startswith("error: QuorumUnavailable: "), refused.stderr


def test_a_domain_without_the_rows_names_the_one_that_they_are_read_from(home):
    placement = named_domains(home, {A: "witness", B: "voter", C: "voter"})
    placement.place(PlacementClass.INGEST)
    version = commit_customers(placement, B, ["a"])
    assert placement.reader().name == A

    (state,) = (each for each in table_states(placement.reader(), NOON) if each.name == "customers")
    assert (state.domain, state.version) == (B, version)
    assert state.uri.startswith(str(root_of(placement, B)))
    told = answered("tables", "path", "customers")
    assert (told["domain"], told["uri"]) == (B, state.uri)
    assert answered("sql", COUNT) == [{"n": 1, "ids": 1}]
