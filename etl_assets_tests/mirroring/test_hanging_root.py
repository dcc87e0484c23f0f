"""A root that hangs, from the beginning or from the middle on: what it costs, and that nothing depends on it.

The roots hang for real, in the kernel. See `reference/hanging_root.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from etl_assets.cli.domains import domains as command
from etl_assets.delta.replicated.replication import Replication
from etl_assets.errors import QuorumUnavailable, Unanswered
from etl_assets.mirroring.stores import object_store
from etl_assets.mirroring.stores.circuit_breaker import Hangs, hanging
from etl_assets.mirroring.stores.guarded_store import GuardedStore
from etl_assets.mirroring.stores.object_store import ObjectStore
from etl_assets.placement.domain_registry import MARKER
from etl_assets.placement.domains import Placement
from etl_assets.placement.health import HealthState
from etl_assets.replicas.reconcile import reconcile_replicas
from etl_assets.steps.placing import leader, place
from etl_assets.testing.hanging_mount import HangingMount
from etl_assets_tests.reference.hanging_root import hanging_mount, silent_server
from etl_assets_tests.reference.mirrored_log import commit_entries
from etl_assets_tests.reference.three_domains import TABLE, A, B, C, commit, root_of, three_domains

LIMIT = 1.0
SLACK = 2.0
"""What a busy machine may need besides."""


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return three_domains(tmp_path, timeout_seconds=LIMIT)


@contextmanager
def within(seconds: float) -> Generator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def as_seen_from(placement: Placement, name: str) -> Replication:
    """The table as a process sees it that has not looked at it before."""
    domain = placement.named(name)
    assert domain is not None
    return Replication(TABLE, domain)


def files(placement: Placement, name: str) -> dict[str, bytes]:
    folder = max((root_of(placement, name) / "tables" / TABLE).glob("g*"))
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def is_back(placement: Placement, name: str) -> None:
    """Wait until nothing hangs there any more, and the domain was seen to answer as often as it takes."""
    deadline = time.monotonic() + 30
    while hanging(str(root_of(placement, name))) and time.monotonic() < deadline:
        time.sleep(0.01)
    while placement.watch.probe(placement.site(name)).state is HealthState.UNAVAILABLE:
        assert time.monotonic() < deadline


ENTRY_POINTS: dict[str, Callable[[Replication], object]] = {
    "exists": Replication.exists,
    "acknowledged": Replication.acknowledged,
    "bind": Replication.bind,
    "lead": Replication.lead,
    "commit": lambda mirrored: commit_entries(mirrored, 1),
    "follow": Replication.follow,
    "standing": Replication.standing,
    "forgotten": lambda mirrored: mirrored.membership.forgotten(),
    "checkpoint": Replication.checkpoint,
}


def test_a_voter_that_hangs_costs_every_entry_point_one_time_limit_at_most(placement):
    commit(placement, A)
    as_seen_from(placement, A).follow()
    with hanging_mount(root_of(placement, C)):
        with within(LIMIT + SLACK):
            for ask in ENTRY_POINTS.values():
                ask(as_seen_from(placement, A))
        assert placement.watch.observations.of(C).state is HealthState.UNAVAILABLE
        with within(SLACK):
            assert reconcile_replicas(placement) == []
            listed = CliRunner().invoke(command, ["list", "--json"])
        health = {each["name"]: (each["health"], each["behind"][TABLE]) for each in json.loads(listed.stdout)}
        assert health == {A: ("healthy", 0), B: ("healthy", 0), C: ("unavailable", None)}
        assert hanging(str(root_of(placement, C))) <= len(ENTRY_POINTS) + 1


def test_a_leader_that_hangs_is_followed_by_another_and_catches_up_when_it_is_back(placement):
    commit(placement, A)
    with hanging_mount(root_of(placement, A)):
        with within(2 * LIMIT + SLACK):
            (kept,) = reconcile_replicas(placement)
            assert kept.moved == B
            assert commit(placement, B) == 1
        assert place(placement, TABLE).name == B
    is_back(placement, A)
    assert reconcile_replicas(placement) == []
    assert files(placement, A) == files(placement, B) == files(placement, C)


def test_a_commit_whose_own_root_hangs_is_cut_and_the_next_leader_decides_about_it(placement):
    """Spark has written the entry; the vote at home is the first thing that hangs."""
    mirrored = as_seen_from(placement, A)
    mirrored.create()
    commit_entries(mirrored, 2)
    mirrored.follow()
    mounts: list[HangingMount] = []
    acknowledge = mirrored.mirror.acknowledge

    def hangs_first(lead, entry):
        mounts.append(HangingMount(root_of(placement, A)))
        acknowledge(lead, entry)

    with hanging_mount(root_of(placement, A)):
        pass  # skips where nothing may be mounted
    mirrored.mirror.acknowledge = hangs_first
    try:
        with within(LIMIT + SLACK), pytest.raises(QuorumUnavailable, match="did not answer within"):
            commit_entries(mirrored, 1)
        with within(SLACK):
            assert place(placement, TABLE).name == B
            assert commit_entries(as_seen_from(placement, B), 2) == 3, "A's version 2 was never voted for"
    finally:
        mounts[0].end()
    is_back(placement, A)
    assert reconcile_replicas(placement) == []
    assert leader(placement, TABLE) == B
    assert files(placement, A) == files(placement, B) == files(placement, C)


def test_other_processes_do_not_ask_what_one_found_to_hang(placement):
    commit(placement, A)
    with hanging_mount(root_of(placement, C)):
        store = as_seen_from(placement, A)._table.replica(C).store
        with pytest.raises(Hangs):
            store.get(MARKER)
        looks = (
            "from etl_assets.settings import load_settings; from etl_assets.delta.replicated.replication"
            " import Replication; import time"
        )
        asks = (
            f"t = time.monotonic(); Replication({TABLE!r},"
            " load_settings().placement().domains[0]).standing(); print(time.monotonic() - t)"
        )
        other = subprocess.run(
            [sys.executable, "-c", f"{looks}\n{asks}"], capture_output=True, timeout=30, check=True
        )
        assert float(other.stdout) < LIMIT


def test_whoever_copies_from_a_root_that_hangs_is_not_taken_to_hang(placement):
    commit(placement, A)
    mirrored = as_seen_from(placement, B)
    source, target = (mirrored._table.replica(name).store for name in (A, C))
    chunks = source.read(f"tables/{TABLE}/g000001/part-0.parquet")
    assert chunks is not None
    with hanging_mount(root_of(placement, A)):
        with pytest.raises(Hangs):
            target.put("copy", chunks)
        assert placement.watch.observations.of(A).state is HealthState.UNAVAILABLE
        assert placement.watch.observations.of(C).state is not HealthState.UNAVAILABLE
        assert target.size("copy") is None


def test_a_process_may_end_while_a_root_hangs(placement):
    commit(placement, A)
    with hanging_mount(root_of(placement, C)):
        looks = (
            "from etl_assets.settings import load_settings; p = load_settings().placement();"
            " print(p.watch.look(p.sites[2]))"
        )
        began = time.monotonic()
        ended = subprocess.run([sys.executable, "-c", looks], capture_output=True, timeout=30, check=True)
        assert time.monotonic() - began < LIMIT + 10
        assert b"did not answer within" in ended.stdout


def test_a_server_that_takes_connections_and_says_nothing_is_cut(monkeypatch):
    monkeypatch.setattr(object_store, "READ_TIMEOUT", object_store.READ_TIMEOUT / 20)
    monkeypatch.setattr(object_store, "RETRY_TIMEOUT", object_store.RETRY_TIMEOUT / 20)
    with silent_server() as endpoint:
        for name, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        store = ObjectStore.open("s3://bucket/silent")
        guarded = GuardedStore(store, seconds=LIMIT / 2, small_key=MARKER)
        with within(LIMIT + SLACK), pytest.raises(Hangs):
            guarded.create("key", b"content")
        with within(SLACK), pytest.raises(Unanswered, match="could not be read or written"):
            store.get("key")  # the client itself gives up as well, so that threads end
