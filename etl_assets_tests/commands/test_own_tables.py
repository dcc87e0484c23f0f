"""Tables of a user's own assets by the commands of a new installation, each in a fresh process, with one
domain and with three.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etl_assets_tests.commands.home import Home

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(900)]

REVISION = "OWN_LOCATION_REVISION"
LOCATION = Path(__file__).with_name("own_location.py")
READINGS, VISITS = "lab.readings", "lab.visits"
COUNT = 'SELECT count(*) AS n, max(revision) AS revision FROM "{}"'


@pytest.fixture
def materialize(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Materializes both assets for a day, as a user does; nothing of the platform has run before."""

    def run(home: Home, day: str, revision: int) -> None:
        monkeypatch.setenv(REVISION, str(revision))
        (home.path / "dagster").mkdir(exist_ok=True)
        arguments = ("-f", str(LOCATION), "--select", "*", "--partition", day)
        done = home.call("asset", "materialize", *arguments, program="dagster")
        assert done.code == 0, done

    return run


def ok(home: Home, *arguments: str, code: int = 0) -> str:
    done = home.call(*arguments)
    assert done.code == code, done
    return done.out


def counted(home: Home, name: str) -> dict[str, int]:
    (row,) = json.loads(ok(home, "sql", COUNT.format(name), "--json"))
    return row


def states(home: Home) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads(ok(home, "tables", "--json"))}


def restored_to(home: Home, name: str, version: int) -> None:
    assert "done: " in home.call("tables", "restore", name, "--to-version", str(version), "--yes").err


@pytest.mark.full
def test_an_installation_of_own_assets_alone_with_one_domain(tmp_path, materialize):
    home = Home(path=tmp_path / "home").begin()
    materialize(home, "2026-01-01", 1)
    first = states(home)
    assert [first[name]["asset"] for name in (READINGS, VISITS)] == ["lab/readings", "lab/visits"]
    materialize(home, "2026-01-01", 2)
    assert counted(home, READINGS) == {"n": 3, "revision": 2}
    assert counted(home, VISITS) == {"n": 6, "revision": 2}
    folder = ok(home, "tables", "path", READINGS).strip()
    assert Path(folder) == home.folder(READINGS)
    # Compaction keeps the rows; the restore takes the second run out of both.
    assert "now 1 files" in ok(home, "tables", "compact", VISITS)
    assert counted(home, VISITS) == {"n": 6, "revision": 2}
    for name in (READINGS, VISITS):
        restored_to(home, name, first[name]["version"])
        assert counted(home, name) == {"n": 3, "revision": 1}
    materialize(home, "2026-01-01", 3)
    assert counted(home, READINGS) == {"n": 3, "revision": 3}
    assert counted(home, VISITS) == {"n": 6, "revision": 3}
    assert "0 files" in ok(home, "tables", "vacuum", VISITS)
    said = home.call("reprocess", "--tables", READINGS)
    assert (said.code, "--select lab/readings" in said.err) == (1, True)


def test_an_installation_of_own_assets_alone_with_three_domains(tmp_path, materialize):
    domains = [{"name": name, "root": name} for name in "abc"]
    home = Home(path=tmp_path / "home").begin(domains=domains)
    materialize(home, "2026-01-01", 1)
    first = states(home)
    assert ok(home, "tables", "verify", READINGS, VISITS).count("whole") == 6
    # The domain that leads is lost: the next run goes on in another one.
    (home.path / "a").rename(home.path / "away")
    materialize(home, "2026-01-02", 2)
    assert counted(home, READINGS) == {"n": 6, "revision": 2}
    assert READINGS in ok(home, "domains", "list", "--json", code=1)
    (home.path / "away").rename(home.path / "a")
    ok(home, "domains", "probe", "a")
    # A replica is damaged, found and repaired.
    (file, *_) = sorted((home.path / "c" / "tables" / READINGS).rglob("*.parquet"))
    file.write_bytes(b"damaged")
    assert f"{READINGS} in c: " in ok(home, "tables", "verify", READINGS, code=1)
    ok(home, "tables", "repair")
    assert ok(home, "tables", "verify", "--contents", READINGS, VISITS).count("whole") == 6
    assert "lab.visits" in ok(home, "tables", "compact", VISITS)
    restored_to(home, READINGS, first[READINGS]["version"])
    assert counted(home, READINGS) == {"n": 3, "revision": 1}
    assert ok(home, "tables", "verify", READINGS, VISITS).count("whole") == 6
    assert "led by b" in ok(home, "tables", "relocate", READINGS, "--to", "b")
