"""The journal in three failure domains, of which one or two are down. No Spark."""

from __future__ import annotations

import datetime as dt
import time

import httpx
import pytest
from click.testing import CliRunner

from etl_assets.cli.tokens import tokens as tokens_command
from etl_assets.placement.domain_registry import AdminState
from etl_assets.serve.retention import remove_read
from etl_assets.serve.service import now_utc
from etl_assets.serve.tokens import Tokens
from etl_assets.settings import load_settings
from etl_assets.sources.http.journal_file import HTTP
from etl_assets.sources.http.journal_lines import JournalLines
from etl_assets.sources.landing import Folders
from etl_assets_tests.serve.server_process import PIPELINE, serving, write_installation

JSON = {"content-type": "application/json"}
NAMES = ("a", "b", "c")


@pytest.fixture
def home(tmp_path, monkeypatch):
    write_installation(
        tmp_path,
        domains=[{"name": f"local/{name}", "root": name} for name in NAMES],
        # A domain that is gone is refused at once: the time is only for a disk that other tests keep busy.
        serve={"write_timeout_seconds": 20},
    )
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


def down(home, name):
    (home / name).rename(home / f"{name}.gone")


def up(home, name):
    (home / f"{name}.gone").rename(home / name)


def files(home, name):
    return {path.name for path in (home / name / "journal").rglob("*.jsonl")}


def until_everywhere(home):
    """The answer waits for a majority, and the last domain may get its file after it."""
    deadline = time.monotonic() + 60
    while not all(files(home, name) for name in NAMES):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def listed(domain):
    source = load_settings().catalog().stage(f"{PIPELINE}_source").source
    assert source is not None
    folder = source(load_settings(), domain).folders[0]
    days = [day for day, _ in folder.days()]
    return [file for day in days for file in folder.list_day(day, now_ns=1 << 62, settle_seconds=0).files]


def test_an_acknowledged_event_is_in_a_majority_and_read_in_the_domain_that_missed_it(home):
    with serving(home) as server, server.client() as client:
        assert client.post(server.events, content=b'{"id": 1}', headers=JSON).status_code == 202
        down(home, "a")
        assert client.post(server.events, content=b'{"id": 2}', headers=JSON).status_code == 202
        assert client.get(f"{server.url}/ready").status_code == 200
        assert not (home / "a").exists(), "nothing is made where a root is missing"
        down(home, "b")
        refused = client.post(
            server.events, content=b'{"id": 3}', headers={**JSON, "idempotency-key": "three"}
        )
        assert refused.status_code == 503
        assert {"local/a", "local/b"} == set(refused.json()["domains"])
        assert refused.headers["retry-after"]
        assert client.get(f"{server.url}/ready").status_code == 503
        up(home, "a")
        up(home, "b")
        again = client.post(server.events, content=b'{"id": 3}', headers={**JSON, "idempotency-key": "three"})
        for _ in range(40):
            if again.status_code == 202:
                break
            time.sleep(0.5)
            again = client.post(
                server.events, content=b'{"id": 3}', headers={**JSON, "idempotency-key": "three"}
            )
        assert again.status_code == 202, again.text
        server.terminate()
    assert len(files(home, "c")) == 3, "a request that was repeated has one file"
    domains = {each.name: each for each in load_settings().placement().domains}
    by_domain = [listed(domains[f"local/{name}"]) for name in NAMES]
    assert [file.name for file in by_domain[0]] == sorted(files(home, "c"))
    assert by_domain[0] == by_domain[1] == by_domain[2], "the marks of a file are the same everywhere"


def test_a_key_is_known_to_the_next_process(home):
    keyed = {**JSON, "idempotency-key": "one"}
    with serving(home) as server, server.client() as client:
        first = client.post(server.events, content=b'{"id": 1}', headers=keyed).json()
        server.kill()
    with serving(home, server.token) as server, server.client() as client:
        again = client.post(server.events, content=b'{"id": 1}', headers=keyed)
        assert again.json() == first
        assert client.post(server.events, content=b'{"id": 2}', headers=keyed).status_code == 422


def test_the_reader_goes_on_without_a_domain_that_is_gone(home):
    with serving(home) as server, server.client() as client:
        client.post(server.events, content=b'{"id": 1}', headers=JSON)
        until_everywhere(home)
        server.terminate()
    down(home, "b")
    placement = load_settings().placement()
    assert [file.source for file in listed(placement.domains[0])] == [HTTP]


def test_files_that_nothing_has_read_are_never_removed(home):
    with serving(home) as server, server.client() as client:
        client.post(server.events, content=b'{"id": 1}', headers=JSON)
        until_everywhere(home)
        server.terminate()
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    assert remove_read(load_settings().placement(), PIPELINE, tomorrow) == 0
    assert files(home, "a")


def test_headers_are_no_records_and_positions_are_those_of_the_file(tmp_path):
    path = tmp_path / "2026-01-01" / "x.jsonl"
    path.parent.mkdir()
    path.write_bytes(b'#{"key": "a"}\n{"a": 1}\n{"a": 2}\n')
    folder = Folders(source=HTTP, path=tmp_path, format=JournalLines())
    (file,) = folder.list_day(dt.date(2026, 1, 1), now_ns=1 << 62, settle_seconds=0).files
    form = folder.format
    (block,) = form.blocks(str(path), file.size, 1 << 20)
    ((first, lines),) = form.read(block, 1_024)
    assert [line.strip() for line in lines if isinstance(line, bytes)] == [b"", b'{"a": 1}', b'{"a": 2}']
    assert list(form.positions(first, lines))[:3] == [0, 14, 23]


def test_a_token_of_a_domain_is_accepted_while_that_domain_may_ingest(home):
    tokens = Tokens(home)
    _, of_a = tokens.add("till", now=now_utc(), domains=["local/a"])
    _, of_outer = tokens.add("till", now=now_utc(), domains=["local"])
    _, elsewhere = tokens.add("till", now=now_utc(), domains=["cloud"])
    with serving(home) as server:

        def sent(token):
            headers = {**JSON, "authorization": f"Bearer {token}"}
            return httpx.post(
                server.events, content=b'{"id": 1}', headers=headers, timeout=30, trust_env=False
            )

        assert sent(of_a).status_code == 202
        load_settings().placement().memory.set_standing("local/a", AdminState.DRAINED)
        refused = sent(of_a)
        assert refused.status_code == 503
        assert refused.json()["type"].endswith("domain-not-allowed")
        assert refused.json()["domains"] == {"local/a": "drained by an operator"}
        assert sent(of_outer).status_code == 202, "two domains in `local` may ingest"
        assert sent(elsewhere).status_code == 503
        load_settings().placement().heal("local/a")
        end = time.monotonic() + 20
        while (again := sent(of_a)).status_code == 503 and time.monotonic() < end:
            time.sleep(0.5)  # a busy domain is healed within moments
        assert again.status_code == 202, again.text
        down(home, "a")
        gone = sent(of_a)
        assert (gone.status_code, set(gone.json()["domains"])) == (503, {"local/a"})
        assert str(home) not in gone.text, "clients are not told where roots are"


def test_a_token_of_a_domain_that_the_policy_keeps_out_of_ingest_is_refused(home):
    write_installation(
        home,
        domains=[{"name": f"local/{name}", "root": name} for name in NAMES],
        placement_policy={"ingest": ["local/b", "local/c"]},
    )
    _, token = Tokens(home).add("till", now=now_utc(), domains=["local/a"])
    with serving(home) as server:
        headers = {**JSON, "authorization": f"Bearer {token}"}
        found = httpx.post(server.events, content=b'{"id": 1}', headers=headers, timeout=30, trust_env=False)
    assert found.status_code == 503
    assert found.json()["domains"] == {"local/a": "the placement policy does not allow it to ingest"}


def test_a_token_is_bound_to_domains_of_the_platform_only(home):
    done = CliRunner().invoke(tokens_command, ["add", "till", "--domain", "cloud"])
    assert done.exit_code == 2
    assert "'cloud' is no failure domain; there are local/a, local/b, local/c" in done.output
    assert not Tokens(home).all()
