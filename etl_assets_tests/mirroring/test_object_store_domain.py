"""Two domains of this machine and one on a real object store, without Spark: what a bucket does, and what it
never does.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from etl_assets.cli.domains import domains as command
from etl_assets.cli.tables import tables
from etl_assets.delta.replicated.replication import Replication
from etl_assets.errors import NotFound, QuorumUnavailable
from etl_assets.mirroring.protocol.reading import Reading
from etl_assets.mirroring.stores.circuit_breaker import DEFAULT_TIMEOUT_SECONDS, hanging
from etl_assets.mirroring.stores.object_store import ObjectStore
from etl_assets.mirroring.stores.opening import open_store
from etl_assets.observability.diagnosis import diagnose
from etl_assets.observability.domain_states import domain_states, one_loss
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domains import Placement
from etl_assets.placement.health import HealthState
from etl_assets.replicas.reconcile import reconcile_replicas
from etl_assets.settings import load_settings
from etl_assets_tests.reference import azure_server
from etl_assets_tests.reference.object_store_server import BUCKET, ObjectStoreServer, running
from etl_assets_tests.reference.three_domains import TABLE, A, B, C, commit, root_of

ROOT = f"s3://{BUCKET}/platform"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStoreServer]:
    yield from running(monkeypatch)


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from azure_server.running(monkeypatch)


@pytest.fixture
def placement(server: ObjectStoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    """The domain on the object store is named first: an order of preference does not make it lead."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    domains = [{"name": C, "root": f"{ROOT}/"}, {"name": A, "root": "a"}, {"name": B, "root": "b"}]
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump({"domains": domains}), "utf-8")
    found = load_settings().placement()
    assert found.place(PlacementClass.INGEST).name == A
    return found


def in_bucket(placement: Placement) -> dict[str, bytes]:
    """What lies in the bucket's newest folder of the table."""
    store = open_store(placement.site(C).root)
    keys = [key for key in store.list(f"tables/{TABLE}/") if not key.startswith(f"tables/{TABLE}/staged")]
    newest = max(key.split("/")[2] for key in keys)
    folder = f"tables/{TABLE}/{newest}/"
    found = {key.removeprefix(folder): store.get(key) for key in keys if key.startswith(folder)}
    return {name: each.content for name, each in found.items() if each is not None}


def in_folder(placement: Placement, name: str) -> dict[str, bytes]:
    folder = max((root_of(placement, name) / "tables" / TABLE).glob("g*"))
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@azure_server.is_here
def test_a_container_of_azure_votes_is_rebuilt_and_counts(azure, tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    domains = [{"name": A, "root": "a"}, {"name": B, "root": "b"}, {"name": C, "root": azure}]
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump({"domains": domains}), "utf-8")
    placement = load_settings().placement()
    assert placement.place(PlacementClass.INGEST).name == A
    for _ in range(3):
        commit(placement, A)
    assert reconcile_replicas(placement) == []
    assert in_bucket(placement) == in_folder(placement, A)
    open_store(azure).put(f"tables/{TABLE}/g000001/part-1.parquet", [b"ro"])
    repaired = CliRunner().invoke(tables, ["repair", TABLE])
    assert repaired.exit_code == 0, repaired.output
    assert in_bucket(placement) == in_folder(placement, A)
    root_of(placement, B).rename(root_of(placement, B).with_name("away"))
    assert commit(placement, A) == 3, "A and C are a majority"


def test_the_bucket_votes_and_holds_the_same_bytes_and_nothing_is_placed_there(placement):
    for _ in range(3):
        commit(placement, A)
    assert reconcile_replicas(placement) == []
    assert in_bucket(placement) == in_folder(placement, A) == in_folder(placement, B)
    states = {state.name: state for state in domain_states(placement)}
    assert states[C].root == ROOT
    assert (states[C].health, states[C].leads, dict(states[C].behind)) == ("healthy", (), {TABLE: 0})
    assert one_loss(list(states.values())) is None
    # With one local domain gone the bucket is the majority's other half, and its copy is not read from here.
    away = root_of(placement, A).rename(root_of(placement, A).with_name("away"))
    (kept,) = reconcile_replicas(placement)
    assert kept.moved == B
    assert commit(placement, B) == 3
    (domain,) = (each for each in placement.domains if each.name == B)
    bound = Replication(TABLE, domain).bind()
    assert bound is not None
    assert (bound.domain, bound.version) == (B, 3)
    away.rename(root_of(placement, A))
    reconcile_replicas(placement)
    assert in_bucket(placement) == in_folder(placement, A) == in_folder(placement, B)
    # With both gone nothing is placed anywhere, least of all in the bucket.
    assert {each.name for each in placement.domains} == {A, B}


def test_a_bucket_whose_server_does_not_look_at_conditions_is_not_taken_into_use(
    server, tmp_path, monkeypatch
):
    """The real server, asked without conditions: what those do that do not know them."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    domains = [{"name": A, "root": "a"}, {"name": B, "root": "b"}, {"name": C, "root": ROOT}]
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump({"domains": domains}), "utf-8")
    placement = load_settings().placement()
    with monkeypatch.context() as lax:
        put_if = ObjectStore._put_if
        lax.setattr(
            ObjectStore, "_put_if", lambda self, key, content, mode: put_if(self, key, content, "overwrite")
        )
        assert placement.place(PlacementClass.INGEST).name == A, "that one is whole"
        with pytest.raises(QuorumUnavailable, match="cannot be made"):
            commit(placement, A)
        result = CliRunner().invoke(command, ["probe", C])
        assert result.exit_code == 1
        assert "If-None-Match" in result.output
        told = {state.name: state.problem for state in domain_states(placement)}
        assert "If-None-Match" in str(told[C])
        assert list(open_store(ROOT).list("")) == []
    # The server was mended, or another one put in its place.
    placement.place(PlacementClass.INGEST)
    assert commit(placement, A) == 0
    assert placement.problem(placement.site(C)) is None


def test_a_version_that_only_the_bucket_has_is_fetched_or_said_to_be_there(placement):
    commit(placement, A)
    reconcile_replicas(placement)
    (domain,) = (each for each in placement.domains if each.name == B)
    table = Replication(TABLE, domain)._table
    nowhere = Reading(table, can_read=lambda uri: False)
    with pytest.raises(QuorumUnavailable, match=f"{C}.*not read from here"):
        nowhere.bind()
    # The version was acknowledged by A and the bucket while B was away; then A is lost.
    away = root_of(placement, B).rename(root_of(placement, B).with_name("away"))
    assert commit(placement, A) == 1
    root_of(placement, A).rename(root_of(placement, A).with_name("lost"))
    away.rename(root_of(placement, B))
    bound = Replication(TABLE, domain).bind()
    assert bound is not None
    assert (bound.domain, bound.version) == (B, 1)
    assert in_folder(placement, B) == in_bucket(placement)


def test_a_server_that_is_gone_costs_little_and_an_emptied_bucket_does_not_vote(placement, server):
    commit(placement, A)
    reconcile_replicas(placement)
    server.kill()
    assert placement.watch.probe_all(placement.sites)[C].state is HealthState.UNAVAILABLE
    assert commit(placement, A) == 1
    assert reconcile_replicas(placement) == []
    listed = CliRunner().invoke(command, ["list", "--json"])
    assert {each["name"]: each["health"] for each in json.loads(listed.stdout)} == {
        A: "healthy",
        B: "healthy",
        C: "unavailable",
    }
    server.start()
    runner = CliRunner()
    probed = runner.invoke(command, ["probe", C])
    assert "the bucket was emptied" in probed.output
    assert reconcile_replicas(placement) == []
    assert list(open_store(ROOT).list("")) == [], "nothing is written before an operator says so"
    # Its blank memory does not make a majority with one that is left.
    away = root_of(placement, B).rename(root_of(placement, B).with_name("away"))
    with pytest.raises(QuorumUnavailable):
        commit(placement, A)
    away.rename(root_of(placement, B))
    assert runner.invoke(command, ["heal", C, "--new-root"]).output == f"{C}: in use\n"
    assert placement.place(PlacementClass.INGEST).name in (A, B)
    (kept,) = reconcile_replicas(placement)
    assert kept.rejoined == (C,)
    assert in_bucket(placement) == in_folder(placement, A)
    shutil.rmtree(root_of(placement, B))
    assert commit(placement, A) > 1, "the bucket counts again"


def test_what_a_stuck_server_was_sent_is_done_late_and_harms_nothing(placement, server):
    commit(placement, A)
    reconcile_replicas(placement)
    away = root_of(placement, B).rename(root_of(placement, B).with_name("away"))
    server.pause()
    began = time.monotonic()
    with pytest.raises(QuorumUnavailable, match=f"{C}: .*did not answer within"):
        commit(placement, A)
    assert time.monotonic() - began < DEFAULT_TIMEOUT_SECONDS + 2
    with pytest.raises(QuorumUnavailable):
        leading(placement).lead()
    assert hanging(ROOT) > 0
    server.resume()
    # The first thing to reach it now may be the vote that was given up.
    deadline = time.monotonic() + 10
    while hanging(ROOT) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert hanging(ROOT) == 0
    placement.heal(C)
    assert leading(placement).lead().version == 1, "the entry was in the home log, and is pushed"
    away.rename(root_of(placement, B))
    placement.heal(B)
    assert reconcile_replicas(placement) == []
    assert commit(placement, A) == 2
    assert reconcile_replicas(placement) == []
    assert in_bucket(placement) == in_folder(placement, A) == in_folder(placement, B)


def leading(placement: Placement) -> Replication:
    """The table as a process sees it that has just been started in the leading domain."""
    domain = placement.named(A)
    assert domain is not None
    return Replication(TABLE, domain)


def test_a_replica_in_the_bucket_is_verified_and_built_anew_and_never_leads(placement):
    commit(placement, A)
    reconcile_replicas(placement)
    runner = CliRunner()
    assert runner.invoke(tables, ["verify", TABLE]).exit_code == 0
    commit(placement, A)
    reconcile_replicas(placement)
    open_store(ROOT).put(f"tables/{TABLE}/g000001/part-1.parquet", [b"ro"])
    found = runner.invoke(tables, ["verify", TABLE])
    assert found.exit_code == 1
    assert f"{TABLE} in {C}: " in found.output
    assert "part-1.parquet" in found.output
    repaired = runner.invoke(tables, ["repair", TABLE])
    assert repaired.exit_code == 0, repaired.output
    assert runner.invoke(tables, ["verify", TABLE]).exit_code == 0
    assert in_bucket(placement) == in_folder(placement, A)
    newest = max(key for key in open_store(ROOT).list(f"tables/{TABLE}/") if key.endswith("/part-1.parquet"))
    open_store(ROOT).put(newest, [b"ROWS"])
    replaced = runner.invoke(tables, ["repair", TABLE, "--contents"])
    assert f"{TABLE} in {C}: part-1.parquet has other bytes than in {A} and {B}; replaced" in replaced.output
    assert in_bucket(placement) == in_folder(placement, A) == in_folder(placement, B)
    refused = runner.invoke(tables, ["relocate", TABLE, "--to", C])
    assert isinstance(refused.exception, NotFound)
    assert "never leads" in str(refused.exception)


def test_no_credentials_are_shown_anywhere(placement, server, caplog):
    commit(placement, A)
    server.kill()
    runner = CliRunner()
    shown = [runner.invoke(command, args).output for args in (["probe", C], ["list"], ["list", "--json"])]
    shown += [load_settings().model_dump_json(), caplog.text]
    shown += [f"{finding.detail} {finding.fix}" for finding in diagnose()]
    assert "not-to-be-shown" not in "".join(shown)
    assert any("object stores" in finding.check and finding.status == "fail" for finding in diagnose())
