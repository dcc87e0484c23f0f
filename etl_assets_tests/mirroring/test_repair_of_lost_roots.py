"""What an operator types after a root was lost: each command names the next one, and nothing is written to a
root that is no domain's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from etl_assets.placement.domain_registry import MARKER
from etl_assets.placement.domains import Placement
from etl_assets_tests.reference.three_domains import TABLE, A, B, C, commit, root_of, three_domains


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    found = three_domains(tmp_path)
    for _ in range(3):
        commit(found, A)
    return found


def etl_assets(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "etl_assets.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=60)


def empty(root: Path) -> None:
    for part in root.iterdir():
        shutil.rmtree(part) if part.is_dir() else part.unlink()


def test_after_the_loss_of_the_leading_root_each_command_names_the_next(placement):
    root = root_of(placement, A)
    empty(root)
    stopped = etl_assets("tables", "repair", TABLE)
    assert stopped.returncode == 1
    assert f"etl-assets tables relocate {TABLE} --to {B}" in stopped.stdout, stopped.stdout
    healed = etl_assets("domains", "heal", A, "--new-root")
    assert healed.returncode == 0, healed.stderr
    assert (root / MARKER).exists(), "the root is taken into use at once"
    refused = etl_assets("tables", "repair", TABLE)
    assert refused.returncode == 1
    assert f"etl-assets tables relocate {TABLE} --to {B}" in refused.stdout, refused.stdout
    assert "tables repair`" not in refused.stdout, "that is what was just typed"
    relocated = etl_assets("tables", "relocate", TABLE, "--to", B)
    assert relocated.returncode == 0, relocated.stderr
    repaired = etl_assets("tables", "repair", TABLE)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    verified = etl_assets("tables", "verify", TABLE)
    assert verified.stdout.splitlines() == [f"{TABLE} in {name}: whole" for name in (A, B, C)]


def test_a_replica_is_built_only_under_a_root_that_carries_the_mark_of_its_domain(placement):
    """An emptied root looks like the mount point of a disk that is away."""
    root = root_of(placement, C)
    empty(root)
    refused = etl_assets("tables", "repair", TABLE)
    assert refused.returncode == 1
    assert f"etl-assets domains heal {C} --new-root" in refused.stdout, refused.stdout
    assert list(root.iterdir()) == []
    shutil.copy(root_of(placement, B) / MARKER, root / MARKER)
    refused = etl_assets("tables", "repair", TABLE)
    assert refused.returncode == 1
    assert f"belongs to the domain {B}" in refused.stdout, refused.stdout
    assert [path.name for path in root.iterdir()] == [MARKER]
    (root / MARKER).unlink()
    assert etl_assets("domains", "heal", C, "--new-root").returncode == 0
    assert etl_assets("tables", "repair", TABLE).returncode == 0
    assert etl_assets("tables", "verify", TABLE).returncode == 0
