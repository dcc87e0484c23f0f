"""`etl-assets effects list` says who is at what, and whose reservation is void."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from etl_assets.cli.main import cli
from etl_assets.contracts.tables import EFFECTS
from etl_assets.delta.table import Table
from etl_assets.effects.store import EffectStore
from etl_assets.effects.table import EffectsTable
from etl_assets_tests.reference.three_domains import A, B, three_domains


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


def listed(*options: str) -> str:
    result = CliRunner().invoke(cli, ["effects", "list", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_before_anything_was_reserved_there_is_nothing(home, tmp_path):
    (tmp_path / "landing").mkdir()
    assert listed() == "no effect is reserved\n"
    assert json.loads(listed("--json")) == []


def test_reservations_are_listed_until_they_are_completed_and_void_ones_are_told(home):
    placement = three_domains(home)
    stores = {}
    for name, sink in ((A, "invoices"), (B, "mails")):
        domain = placement.named(name)
        assert domain is not None
        table = Table(name=EFFECTS.name, domain=domain, contract=EFFECTS)
        stores[name] = EffectStore(EffectsTable(table), sink=sink, domain=name, process="p")
        stores[name].reserve_all({"open": "f", "done": "f"})
    stores[B].complete("done", None)
    found = [(each["sink"], each["key"], each["is_fenced"]) for each in json.loads(listed("--json"))]
    assert sorted(found) == [("invoices", "done", True), ("invoices", "open", True), ("mails", "open", False)]
    (line,) = listed("--sink", "mails").splitlines()
    assert line.startswith("mails open: attempt 1, for ")
    assert line.endswith(f"by {stores[B]._process} in local/b")
    assert "fenced: the next one that asks gets it" in listed("--sink", "invoices")
