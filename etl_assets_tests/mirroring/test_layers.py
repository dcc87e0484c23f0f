"""Mirroring is plain Python over plain storage."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import etl_assets.mirroring

FOLDER = Path(etl_assets.mirroring.__file__).parent
PACKAGE = FOLDER.parent
NO_CLOCK = [
    *FOLDER.rglob("*.py"),
    *(PACKAGE / "placement").glob("*.py"),
    *(
        PACKAGE / "delta" / f"{name}.py"
        for name in (
            "replicated/rebuild",
            "replicated/registration",
            "replicated/replication",
            "replicated/replication_status",
            "log/checkpoint",
            "write/commit",
            "write/write_version",
        )
    ),
    *(PACKAGE / "replicas" / f"{name}.py" for name in ("reconcile", "scrub", "members")),
    PACKAGE / "steps" / "placing.py",
    *(PACKAGE / "observability" / f"{name}.py" for name in ("domain_states", "domain_changes", "lag")),
]
"""Where whatever is decided for several domains is decided. The clocks of their machines may differ by hours.
"""
CLOCK = {"time", "time_ns", "now", "utcnow", "today", "localtime", "gmtime"}
ALLOWED = ("etl_assets.contracts", "etl_assets.errors", "etl_assets.mirroring", "etl_assets.placement")


def imported(module: Path) -> set[str]:
    tree = ast.parse(module.read_text())
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return names | {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }


@pytest.mark.parametrize("module", sorted(FOLDER.rglob("*.py")), ids=lambda module: module.stem)
def test_mirroring_knows_neither_spark_nor_dagster_nor_the_layers_above(module):
    for name in imported(module):
        assert name.split(".")[0] not in ("dagster", "pyspark", "delta", "deltalake")
        assert not name.startswith("etl_assets") or name.startswith(ALLOWED), name


@pytest.mark.parametrize("module", sorted(FOLDER.rglob("*.py")), ids=lambda module: module.stem)
def test_only_the_object_store_needs_a_library(module):
    assert (module.stem == "object_store") == any(name.startswith("obstore") for name in imported(module))


@pytest.mark.parametrize("module", NO_CLOCK, ids=lambda module: f"{module.parent.name}.{module.stem}")
def test_nothing_that_several_domains_agree_on_depends_on_what_time_it_is(module):
    tree = ast.parse(module.read_text())
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    taken = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime")
        for alias in node.names
    }
    assert not (read | taken) & CLOCK, "a monotonic clock of one machine measures how long something takes"
