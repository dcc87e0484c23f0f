"""A pipeline that is declared while the UI runs is shown within seconds, and a broken one unloads nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from etl_assets_tests.e2e.dagster_ui import DagsterApi, dagster_ui, wait

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]
SUPPLIERS = """
name: suppliers
source: {type: files, path: incoming/*.csv}
columns: {id: bigint}
table: {keys: [id]}
"""


def test_declarations_that_come_break_and_go_are_shown_without_a_reload_by_hand(home: Path, tell):
    (home / "pipelines").mkdir(parents=True)
    file = home / "pipelines" / "suppliers.yaml"
    with dagster_ui(home) as api:
        there = assets(api)
        assert "suppliers" not in there
        began = time.monotonic()
        file.write_text(SUPPLIERS, "utf-8")
        wait(lambda: "suppliers" in assets(api), seconds=120, what="the declared pipeline", every=0.5)
        tell(f"declared to shown in Dagster: {time.monotonic() - began:.1f} s")
        file.write_text(SUPPLIERS.replace("keys", "kesy"), "utf-8")
        wait(
            lambda: "broken_pipelines/suppliers" in assets(api), seconds=120, what="the broken one", every=0.5
        )
        assert there <= assets(api), "the others stay"
        file.unlink()
        wait(lambda: assets(api) == there, seconds=120, what="the end of the pipeline", every=0.5)


def assets(api: DagsterApi) -> set[str]:
    found = api.query("{ assetNodes { assetKey { path } } }")["assetNodes"]
    return {"/".join(each["assetKey"]["path"]) for each in found}
