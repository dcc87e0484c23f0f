"""Looking at roots: real folders, one of them behind a file that hangs whoever opens it."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from etl_assets.cli.domains import domains as command
from etl_assets.delta.replicated.replication import Replication
from etl_assets.errors import DomainUnavailable, MembershipRefused, QuorumUnavailable, Unanswered
from etl_assets.mirroring.stores.circuit_breaker import ask
from etl_assets.mirroring.stores.circuit_breaker import hanging as calls_that_hang
from etl_assets.mirroring.stores.opening import open_store
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domains import Placement
from etl_assets.placement.health import Health, HealthState, ProbeResult
from etl_assets.placement.observations import Observations
from etl_assets.placement.probes import PROBE_KEY
from etl_assets.replicas.reconcile import reconcile_replicas
from etl_assets.settings import load_settings
from etl_assets_tests.reference.three_domains import (
    TABLE,
    A,
    B,
    C,
    commit,
    named_domains,
    root_of,
    three_domains,
)

TIMEOUT = 0.3


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    """Three domains in use, with little patience."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return impatient(three_domains(tmp_path))


def impatient(placement: Placement) -> Placement:
    return dataclasses.replace(placement, watch=dataclasses.replace(placement.watch, timeout_seconds=TIMEOUT))


@contextmanager
def hanging(root: Path, *names: str) -> Generator[None]:
    """Let every process hang in the kernel that opens the root's marker, or these files, until the end of the
    block.
    """
    files = [root / name for name in ("domain.json", *names)]
    for file in files:
        file.rename(file.with_name(f"{file.name}.away"))
        os.mkfifo(file)
    try:
        yield
    finally:
        for file in files:
            stuck = file.rename(file.with_name(f"{file.name}.stuck"))
            file.with_name(f"{file.name}.away").rename(file)
            # Whoever waits for a writer gets one, and reads nothing from it.
            deadline = time.monotonic() + 5
            with suppress(OSError):
                while time.monotonic() < deadline:
                    os.close(os.open(stuck, os.O_WRONLY | os.O_NONBLOCK))
                    time.sleep(0.01)
        nobody_looks(str(root))


def nobody_looks(root: str) -> None:
    """Wait until what was given up has come to its end."""
    deadline = time.monotonic() + 5
    while calls_that_hang(root) and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_probe_writes_and_reads_through_the_store(placement):
    site = placement.site(A)
    assert placement.watch.probe(site).state is HealthState.HEALTHY
    first = open_store(site.root).get(PROBE_KEY)
    placement.watch.probe(site)
    second = open_store(site.root).get(PROBE_KEY)
    assert first is not None
    assert second is not None
    assert first.content != second.content


def test_a_root_that_cannot_be_written_fails_the_probe(placement):
    # A file where the probe's folder should be: also root cannot write there.
    (root_of(placement, A) / "health").write_text("")
    health = placement.watch.probe(placement.site(A))
    assert health.failures == 1
    assert "could not be read or written" in (health.problem or "")
    assert placement.place(PlacementClass.INGEST).name == B


def test_a_root_that_hangs_costs_one_time_limit_and_one_thread(placement):
    with hanging(root_of(placement, A)):
        began = time.monotonic()
        assert placement.place(PlacementClass.INGEST, leader=A).name != A
        first = time.monotonic() - began
        assert TIMEOUT <= first < TIMEOUT + 2
        began = time.monotonic()
        for _ in range(20):
            assert placement.place(PlacementClass.INGEST, leader=A).name != A
            assert "did not answer" in (placement.problem(placement.site(A)) or "")
        assert time.monotonic() - began < 20 * TIMEOUT / 2
        for _ in range(5):
            placement.watch.probe(placement.site(A))
        assert calls_that_hang(str(root_of(placement, A))) == 1
        assert placement.watch.observations.of(A).state is HealthState.UNAVAILABLE
        with pytest.raises(DomainUnavailable, match="did not answer"):
            dataclasses.replace(placement, domains=placement.domains[:1]).place(PlacementClass.INGEST)
    for _ in range(3):
        health = placement.watch.probe(placement.site(A))
    assert health.state is HealthState.HEALTHY


def test_a_root_that_hangs_keeps_nobody_from_the_tables_of_the_others(placement):
    commit(placement, A)
    reconcile_replicas(placement)  # waits for C, whose vote the commit did not wait for
    with hanging(root_of(placement, C), f"register/{TABLE}.json"):
        assert placement.watch.probe_all(placement.sites)[C].state is HealthState.UNAVAILABLE
        began = time.monotonic()
        assert reconcile_replicas(placement) == []
        assert time.monotonic() - began < 3
        # A process that started while it hung, and has not looked at it itself.
        (domain,) = (each for each in placement.domains if each.name == B)
        standing = Replication(TABLE, domain).standing()
        assert standing is not None
        assert dict(standing.behind) == {A: 0, B: 0, C: None}


def test_all_domains_are_probed_at_once_and_the_first_failure_is_made_sure_of(placement):
    with hanging(root_of(placement, A)), hanging(root_of(placement, B)):
        began = time.monotonic()
        health = placement.watch.probe_all(placement.sites)
        assert time.monotonic() - began < 2 * TIMEOUT + 6
        assert [health[name].state.value for name in (A, B, C)] == ["unavailable", "unavailable", "healthy"]


def test_what_one_process_saw_another_goes_by_without_asking(placement):
    with hanging(root_of(placement, A)):
        placement.watch.probe_all(placement.sites)
        other = impatient(load_settings().placement())
        began = time.monotonic()
        assert other.place(PlacementClass.INGEST, leader=A).name == B
        assert time.monotonic() - began < TIMEOUT / 2


def test_a_lost_root_comes_back_after_several_probes_or_by_heal(placement):
    away = root_of(placement, A).rename(root_of(placement, A).with_name("away"))
    placement.watch.probe_all(placement.sites)
    away.rename(root_of(placement, A))
    runner = CliRunner()
    told = [runner.invoke(command, ["probe", A]) for _ in range(3)]
    assert [each.exit_code for each in told] == [1, 1, 0]
    assert "unavailable" in told[0].output
    assert "1 of 3 times" in told[0].output
    assert told[2].output == f"{A}: healthy, can be used\n"
    away = root_of(placement, A).rename(away)
    placement.watch.probe_all(placement.sites)
    away.rename(root_of(placement, A))
    assert runner.invoke(command, ["heal", A]).output == f"{A}: in use\n"
    assert placement.place(PlacementClass.INGEST).name == A


def test_a_stale_healthy_is_not_trusted(placement):
    placement.watch.probe_all(placement.sites)
    assert placement.watch.observations.of(A).state is HealthState.HEALTHY
    root_of(placement, A).rename(root_of(placement, A).with_name("away"))
    assert placement.place(PlacementClass.INGEST, leader=A).name != A


def test_a_degraded_domain_is_taken_after_the_others_but_keeps_what_it_leads(placement):
    slow = ProbeResult(began=time.monotonic(), ended=time.monotonic(), slow=True)
    placement.watch.observations.add(A, slow)
    assert placement.place(PlacementClass.INGEST).name == B
    assert placement.place(PlacementClass.INGEST, leader=A).name == A


def test_nothing_is_written_to_a_root_that_is_not_the_known_one(placement):
    root = root_of(placement, A)
    root.rename(root.with_name("away"))
    root.mkdir()
    assert placement.watch.probe(placement.site(A)).failures == 1
    assert list(root.iterdir()) == []


def test_the_list_tells_state_and_why(placement):
    root_of(placement, C).rename(root_of(placement, C).with_name("away"))
    load_settings().placement().watch.probe_all(placement.sites)  # slow at the usual measure only
    listed = json.loads(CliRunner().invoke(command, ["list", "--json"]).stdout)
    states = {each["name"]: (each["health"], each["why"]) for each in listed}
    assert states[A] == ("healthy", None)
    assert states[C][0] == "unavailable"
    assert "not mounted" in states[C][1]
    CliRunner().invoke(command, ["drain", B])
    listed = json.loads(CliRunner().invoke(command, ["list", "--json"]).stdout)
    assert {each["name"]: each["health"] for each in listed}[B] == "drained"


def test_a_probe_of_a_domain_that_was_taken_out_says_so(placement):
    runner = CliRunner()
    runner.invoke(command, ["drain", B])
    result = runner.invoke(command, ["probe", B])
    assert result.exit_code == 0, "its root is whole"
    assert (
        result.output
        == f"{B}: healthy; drained by an operator, `etl-assets domains heal {B}` puts it back to use\n"
    )
    runner.invoke(command, ["heal", B])
    assert runner.invoke(command, ["probe", B]).output == f"{B}: healthy, can be used\n"


def test_what_another_boot_wrote_is_forgotten(tmp_path):
    observations = Observations(tmp_path / "health.json")
    now = time.monotonic()
    for _ in range(3):
        observations.add(A, ProbeResult(began=now, ended=now, problem="no answer"))
    assert observations.of(A).failures == 3
    content = json.loads(observations.file.read_text())
    observations.file.write_text(json.dumps({**content, "boot": "another"}))
    assert observations.of(A) == Health()
    content["domains"][A]["next_probe"] = now + 1e6
    observations.file.write_text(json.dumps(content))
    assert observations.of(A) == Health(), "its time lies ahead: this machine was started anew"


def test_observations_that_cannot_be_read_or_written_stop_nobody(tmp_path):
    observations = Observations(tmp_path / "health.json")
    observations.file.write_text("[]")
    now = time.monotonic()
    failed = ProbeResult(began=now, ended=now, problem="no answer")
    assert observations.add(A, failed).failures == 1
    (tmp_path / "file").write_text("")
    nowhere = Observations(tmp_path / "file" / "health.json")
    assert nowhere.add(A, failed).failures == 1
    assert nowhere.of(A) == Health()


def test_one_of_several_processes_probes_what_is_due(tmp_path):
    observations = Observations(tmp_path / "health.json")
    observations.add(A, ProbeResult(began=0.0, ended=0.0, problem="no answer"))
    claims = [Observations(observations.file).claim(A, time.monotonic() + 5) for _ in range(3)]
    assert claims == [True, False, False]


def test_a_question_is_asked_once_at_a_time_and_its_error_comes_back(tmp_path):
    assert ask("root", lambda: 7, 1.0) == 7
    with pytest.raises(ZeroDivisionError):
        ask("root", lambda: 1 / 0, 1.0)
    go_on = threading.Event()
    with pytest.raises(Unanswered, match=r"did not answer within 0\.05 s"):
        ask("root", go_on.wait, 0.05)
    began = time.monotonic()
    with pytest.raises(Unanswered):
        ask("root", lambda: 8, 0.05)
    assert time.monotonic() - began < 0.04
    assert ask("another root", lambda: 9, 1.0) == 9
    go_on.set()
    nobody_looks("root")
    assert ask("root", lambda: 8, 1.0) == 8


@pytest.mark.parametrize(
    ("roles", "says"),
    [
        (["voter"], None),
        (["voter", "voter"], "either of them is down"),
        (["voter", "voter", "voter"], None),
        (["voter", "voter", "witness"], None),
        (["voter", "voter", "learner"], "either of them is down"),
        (["voter"] * 4, "2 of them are down"),
        (
            ["voter", "voter", "voter", "witness"],
            "4 votes of 3 voters and 1 witness cannot go on while 2 of them are down",
        ),
        (["voter", "voter", "witness", "witness"], "2 of them are down"),
        (["voter", "voter", "voter", "witness", "witness"], None),
        (["voter", "witness"], "its loss loses data"),
        (["voter", "witness", "witness"], "its loss loses data"),
        (["voter", "learner"], "its loss loses data"),
    ],
)
def test_domains_that_cannot_do_without_one_or_half_of_them_are_warned_of_and_allowed(
    tmp_path, monkeypatch, roles, says
):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    domains = [
        {"name": f"rack/{number}", "root": f"r{number}", "role": role} for number, role in enumerate(roles)
    ]
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump({"domains": domains}), "utf-8")
    doubts = load_settings().doubts
    assert [says in doubt for doubt in doubts] == ([] if says is None else [True])
    result = CliRunner().invoke(command, ["list"])
    assert ("warning: domains:" in result.output) is (says is not None)


def test_two_platforms_that_share_a_root_are_told_apart(placement, tmp_path, monkeypatch):
    commit(placement, A)
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("ETL_ASSETS_HOME", str(other))
    shared = [{"name": A, "root": str(root_of(placement, A))}, *({"name": n, "root": n[-1]} for n in (B, C))]
    (other / "platform.yaml").write_text(yaml.safe_dump({"domains": shared}), "utf-8")
    second = load_settings().placement()
    second.place(PlacementClass.INGEST)
    (domain,) = (each for each in second.domains if each.name == A)
    with pytest.raises(MembershipRefused, match="another platform made it"):
        Replication(TABLE, domain).create()


@pytest.mark.parametrize("shared", [(A,), (C,), (A, B)])
def test_a_platform_whose_domains_have_other_names_does_not_take_the_tables_under_a_shared_root(
    placement, tmp_path, monkeypatch, shared
):
    commit(placement, A)
    reconcile_replicas(placement)
    before = {name: tree(root_of(placement, name)) for name in (A, B, C)}
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("ETL_ASSETS_HOME", str(other))
    domains = [
        {"name": f"rack/{name[-1]}", "root": str(root_of(placement, name)) if name in shared else name[-1]}
        for name in (A, B, C)
    ]
    (other / "platform.yaml").write_text(yaml.safe_dump({"domains": domains}), "utf-8")
    second = load_settings().placement()
    domain = second.place(PlacementClass.INGEST)
    with pytest.raises(MembershipRefused, match="another platform, with the failure domains local/a") as no:
        Replication(TABLE, domain).create()
    assert no.value.fix.startswith("give each platform roots of its own")
    told = {each.problem for each in reconcile_replicas(second) if each.table == TABLE}
    assert told == {no.value.message}
    assert {name: tree(root_of(placement, name)) for name in (A, B, C)} == before
    assert commit(placement, A) == 1


def test_no_table_is_made_under_a_root_of_another_platform_or_one_that_is_not_mounted(
    placement, tmp_path, monkeypatch
):
    other = tmp_path / "other"
    other.mkdir()
    (other / "platform.yaml").write_text("domains: [{name: alone, root: data}]", "utf-8")
    monkeypatch.setenv("ETL_ASSETS_HOME", str(other))
    alone = load_settings().placement()
    domain = alone.place(PlacementClass.INGEST)
    before = tree(domain.root)
    # A mistake in the platform file of the others: one of their roots is that one's.
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "domains.json").unlink()
    mistaken = named_domains(tmp_path, dict.fromkeys((A, B, C), "voter"), roots={C: str(domain.root)})
    first = mistaken.place(PlacementClass.INGEST)
    with pytest.raises(QuorumUnavailable, match="belongs to the domain alone") as no:
        Replication(TABLE, first).create()
    assert "each with a root of its own" in no.value.fix
    assert tree(domain.root) == before
    assert alone.problem(domain) is None, "it goes on, whatever others point at"
    # A disk that is not mounted has a folder, and nothing in it.
    (root_of(placement, C) / "domain.json").unlink()
    with pytest.raises(QuorumUnavailable, match="was emptied, its disk or bucket is not there"):
        Replication(TABLE, placement.domains[0]).create()
    assert tree(root_of(placement, C)) == {}


def tree(root: Path) -> dict[str, bytes]:
    """Content of every file under a root, but for what probes write."""
    paths = [path for path in root.rglob("*") if path.is_file() and "health" not in path.parts]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
