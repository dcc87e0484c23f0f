"""A root that was put back from a backup, and an outage later: a replica has what was acknowledged before,
the others agreed on something else.

It is reported, not read and not counted, until an operator has it built again from the others.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import suppress

import pytest

from etl_assets.errors import Fenced, QuorumUnavailable, ReplicaCorrupt
from etl_assets.mirroring.maintenance.inspection import look
from etl_assets.mirroring.maintenance.verification import problems
from etl_assets.mirroring.protocol.lead import Lead
from etl_assets.replicas.reconcile import reconcile_replicas
from etl_assets.replicas.scrub import ScrubCursor, scrub
from etl_assets.testing.memory_store import MemoryStore, StoreFault
from etl_assets_tests.mirroring.platform import Platform, Process
from etl_assets_tests.reference import three_domains
from etl_assets_tests.reference.three_domains import TABLE, A, B, C

FORKED = "has forked: it published version 3, which is not in the history"
LOST = 3
"""The version that a alone has of the history before."""


class Outages:
    def __init__(self) -> None:
        self.down: set[str] = set()

    def before(self, store, operation, key):
        return StoreFault.LOST if store in self.down else None

    def after(self, store, operation, key):
        pass

    def later(self, store, effect):
        pass


@pytest.fixture
def outages() -> Outages:
    return Outages()


@pytest.fixture(params=[2, 3, 4], ids=["ahead", "as far", "behind"])
def platform(outages, request) -> Platform:
    """`a` has published version 3 of a history of which b and c know up to version 1, and agreed on other
    versions after that.
    """
    made = Platform({domain: MemoryStore(domain, outages) for domain in "abc"})
    made.bootstrap()
    leader = made.process("a")
    lead = leader.commit(leader.commit())
    backup = dict(files(made, "b"))
    outages.down = {"c"}
    leader.commit(leader.commit(lead))
    files(made, "b").clear()
    files(made, "b").update(backup)
    outages.down = {"a"}
    while (lead := made.process("b").commit()).version < request.param:
        pass
    outages.down = set()
    return made


def files(platform: Platform, domain: str) -> dict[str, bytes]:
    store = platform.stores[domain]
    assert isinstance(store, MemoryStore)
    return store.files


def led_again(platform: Platform) -> Lead:
    """The lead of b, which finds out first that another domain has claimed it."""
    with suppress(Fenced):
        return platform.process("b").lead()
    return platform.process("b").lead()


def whole(process: Process, domain: str) -> list[str]:
    state = process.reading.acknowledged()
    agreed = state.locator.replica(domain)
    assert agreed is not None
    return problems(process.mirror.table, agreed, state, lambda *_: True)


@pytest.mark.parametrize("home", ["a", "b", "c"])
def test_no_reader_is_bound_to_a_replica_of_another_history(platform, home):
    agreed = platform.process("b").leadership.current()
    bound = platform.process(home).reading.bind()
    assert (bound.version, bound.chain) == (agreed.version, agreed.chain)
    assert bound.domain == ("b" if home == "a" else home)


def test_it_does_not_count_for_a_vote(platform, outages):
    leader = platform.process("b")
    lead = leader.commit()
    outages.down = {"c"}
    with pytest.raises(QuorumUnavailable, match=f"a: the replica of events in a {FORKED}") as refused:
        leader.mirror.acknowledge(lead, leader.spark_commit(lead))
    assert set(refused.value.missing) == {"a", "c"}
    with pytest.raises(QuorumUnavailable, match=r"a: .*has forked"):
        platform.process("a").reading.bind()
    outages.down = set()
    assert leader.lead().version == lead.version + 1


def test_it_does_not_count_for_a_claim_and_does_not_lead(platform, outages):
    outages.down = {"b"}
    with pytest.raises(QuorumUnavailable, match=r"a: .*has forked"):
        platform.process("c").lead()
    outages.down = set()
    agreed = led_again(platform)
    with pytest.raises((ReplicaCorrupt, QuorumUnavailable), match="has forked") as refused:
        platform.process("a").lead()
    assert "tables repair events" in refused.value.fix or "a: has forked" in str(refused.value)
    again = led_again(platform)
    assert (again.version, again.chain) == (agreed.version, agreed.chain)


def test_it_is_found_by_whoever_verifies_and_by_the_look_over(platform):
    process = platform.process("b")
    assert [FORKED in each for each in whole(process, "a")] == [True]
    assert (whole(process, "b"), whole(process, "c")) == ([], [])
    state = process.reading.acknowledged()
    found = {
        each.domain: look(process.mirror.table, each, state, None, lambda *_: True)
        for each in state.locator.replicas
    }
    assert {domain for domain, each in found.items() if each.forked} == {"a"}
    assert FORKED in (found["a"].problem or "")


def test_it_counts_again_once_it_was_built_from_the_others(platform, outages):
    leader = platform.process("b")
    lead = leader.commit()
    leader.membership.remove("a")
    leader.membership.add("a")
    leader.membership.promote("a")
    assert whole(leader, "a") == []
    outages.down = {"c"}
    lead = leader.commit(leader.lead())
    bound = platform.process("a").reading.bind()
    assert (bound.domain, bound.version, bound.chain) == ("a", lead.version, lead.chain)


def test_the_commands_report_it_and_build_it_from_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    placement = three_domains.three_domains(tmp_path)
    a, b, c = (three_domains.root_of(placement, name) for name in (A, B, C))
    three_domains.commit(placement, A)
    shutil.copytree(b, tmp_path / "backup")
    c.rename(tmp_path / "away")
    three_domains.commit(placement, A)
    shutil.rmtree(b)
    (tmp_path / "backup").rename(b)
    (tmp_path / "away").rename(c)
    a.rename(tmp_path / "away")
    assert command("tables", "relocate", TABLE, "--to", B).returncode == 0
    three_domains.commit(placement, B, rows=1)
    (tmp_path / "away").rename(a)
    placement.heal(A)

    forked = (
        "has forked: it published version 1, which is not in the history that the others agreed on, up to"
        " version 1"
    )
    verified = command("tables", "verify", TABLE)
    assert (verified.returncode, f"{TABLE} in {A}: {forked}" in verified.stdout) == (1, True), verified.stdout
    assert f"{TABLE} in {B}: whole\n{TABLE} in {C}: whole" in verified.stdout
    doctor = command("doctor", "--json")
    (found,) = [each for each in json.loads(doctor.stdout) if each["check"] == "replicas"]
    assert (doctor.returncode, found["status"], found["detail"].startswith(f"{TABLE} in {A} {forked}")) == (
        1,
        "fail",
        True,
    )
    assert f"`etl-assets tables repair {TABLE}`" in found["fix"]
    (kept,) = reconcile_replicas(placement)
    assert f"{A} {forked}" in (kept.problem or "")
    survey = ScrubCursor(table=TABLE)
    survey, told = scrub(placement, survey, seconds=60)
    assert [(each.repaired, forked in (each.problem or "")) for each in told] == [((), True)], (
        "not built anew by itself"
    )
    moved = command("tables", "relocate", TABLE, "--to", A)
    assert (moved.returncode, forked in moved.stderr) == (1, True), moved.stderr

    repaired = command("tables", "repair", TABLE)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert f"{TABLE} in {A}: {forked}" in repaired.stdout
    assert command("tables", "verify", TABLE).returncode == 0
    assert command("tables", "relocate", TABLE, "--to", A).returncode == 0
    c.rename(tmp_path / "away")
    assert three_domains.commit(placement, A) == 2


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "etl_assets.cli.main", *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def put_back(outages) -> Platform:
    """`a` leads, b and c have versions 0 to 3, and a was put back to when there were 0 and 1: it takes itself
    for the leader.
    """
    made = Platform({domain: MemoryStore(domain, outages) for domain in "abc"})
    made.bootstrap()
    leader = made.process("a")
    lead = leader.commit(leader.commit())
    backup = dict(files(made, "a"))
    leader.commit(leader.commit(lead))
    files(made, "a").clear()
    files(made, "a").update(backup)
    return made


def test_a_leader_that_was_put_back_takes_up_the_lead_again_with_all_that_was_acknowledged(put_back):
    chain = put_back.process("b").reading.acknowledged().chain
    process = put_back.process("a")
    lead = process.lead()
    assert (lead.version, lead.chain) == (3, chain)
    assert process.commit(lead).version == 4
    assert [whole(process, domain) for domain in "abc"] == [[], [], []]


def test_a_commit_on_what_a_leader_that_was_put_back_remembers_is_not_acknowledged(put_back):
    process = put_back.process("a")
    lead = process.leadership.current()
    with pytest.raises((QuorumUnavailable, ReplicaCorrupt)):
        process.mirror.acknowledge(lead, process.spark_commit(lead))
    assert put_back.process("b").reading.acknowledged().version == 3
    assert put_back.process("a").commit().version == 4


def test_a_voter_that_accepted_another_version_under_the_same_epoch_does_not_count(outages):
    """The epoch was claimed again by a domain whose root was put back: two histories under one epoch."""
    platform = Platform({domain: MemoryStore(domain, outages) for domain in "abc"})
    platform.bootstrap()
    leader = platform.process("a")
    lead = leader.commit()
    backup = dict(files(platform, "a"))
    outages.down = {"c"}
    # Acknowledged by a and b, and not yet published there.
    state = leader.mirror.leading()[1].with_entry(entry := leader.spark_commit(lead))
    leader.mirror.acknowledge(lead, entry)
    files(platform, "b")[platform.process("b").mirror.home.staged_key(1, state.chain)] = entry
    files(platform, "a").clear()
    files(platform, "a").update(backup)
    outages.down = {"b"}
    platform.process("a").commit()
    outages.down = {"c"}
    with pytest.raises(QuorumUnavailable, match="has forked"):
        platform.process("a").commit()
    outages.down = set()
    assert platform.process("a").commit().version >= 2
    assert platform.process("b").reading.bind().domain != "b"
