"""Replicas as the platform file wants them: domains join, are promoted, are taken out; a crash in between is
made good.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from etl_assets.cli.domains import domains as command
from etl_assets.cli.tables import tables
from etl_assets.delta.replicated import replication
from etl_assets.delta.replicated.replication import Replication
from etl_assets.errors import DomainUnavailable, InputError
from etl_assets.mirroring.protocol.couriers import DEFAULT_PATIENCE_SECONDS
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.protocol.membership import Membership
from etl_assets.mirroring.protocol.record_codec import sealed
from etl_assets.mirroring.stores.local_store import LocalStore
from etl_assets.observability.domain_states import domain_states, one_loss
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domain_registry import AdminState
from etl_assets.placement.domains import Placement
from etl_assets.placement.health import FAILURES_TO_UNAVAILABLE, HealthState, ProbeResult
from etl_assets.replicas.members import plan_members
from etl_assets.replicas.reconcile import ReconcileResult, reconcile_replicas
from etl_assets.steps.placing import leader, place
from etl_assets.steps.step import platform_table
from etl_assets_tests.mirroring.platform import Impatient
from etl_assets_tests.reference.three_domains import TABLE, A, B, C, commit, named_domains, root_of

D = "local/d"
VOTERS = dict.fromkeys((A, B, C), "voter")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


def begun(home: Path, roles: dict[str, str]) -> Placement:
    """A platform with one commit, which every domain has."""
    placement = named_domains(home, roles)
    placement.place(PlacementClass.INGEST)
    commit(placement, A)
    assert reconcile_replicas(placement) == []
    return placement


def mirrored(placement: Placement) -> Replication:
    found = platform_table(TABLE, placement.reader()).replication
    assert found is not None
    return found


def roles(placement: Placement) -> dict[str, str]:
    standing = mirrored(placement).standing()
    assert standing is not None
    return {name: role.value for name, role in standing.roles.items()}


def promised(placement: Placement, name: str) -> dict[str, object]:
    """The epoch that a domain's register has promised."""
    return json.loads((root_of(placement, name) / "register" / f"{TABLE}.json").read_text())["promised"]


def gone(placement: Placement, name: str) -> Path:
    """Take a domain's disk away, and have that seen."""
    root = root_of(placement, name)
    root.rename(root.with_name(f"away-{name[-1]}"))
    for _ in range(FAILURES_TO_UNAVAILABLE):
        fails_once(placement, name)
    return root


def fails_once(placement: Placement, name: str) -> None:
    now = time.monotonic()
    placement.watch.observations.add(name, ProbeResult(began=now, ended=now, problem="away"))


def back(placement: Placement, name: str) -> None:
    root = root_of(placement, name)
    root.with_name(f"away-{name[-1]}").rename(root)
    placement.heal(name)


def kept(placement: Placement) -> ReconcileResult:
    (found,) = reconcile_replicas(placement)
    return found


def test_what_the_file_asks_for_is_compared_with_what_was_agreed_on():
    agreed = {"a": Role.VOTER, "b": Role.LEARNER, "c": Role.VOTER, "old": Role.VOTER, "l": Role.LEARNER}
    wanted = {"a": Role.VOTER, "b": Role.WITNESS, "c": Role.LEARNER, "new": Role.VOTER, "l": Role.LEARNER}
    plan = plan_members(agreed, wanted)
    assert (plan.join, plan.promote, plan.strays) == (("new",), ("b",), ("old",))
    assert list(plan.fixed) == ["c"]
    assert "domains remove c" in plan.fixed["c"]


@pytest.mark.parametrize("role", ["voter", "witness", "learner"])
def test_a_domain_that_is_added_to_the_platform_file_joins_in_its_role(home, role):
    begun(home, VOTERS)
    placement = named_domains(home, {**VOTERS, D: role})
    assert kept(placement) == ReconcileResult(table=TABLE, joined=(D,))
    assert reconcile_replicas(placement) == []
    assert roles(placement) == {**VOTERS, D: role}
    held = {path.name for path in (home / "d" / "tables" / TABLE).rglob("part-*")}
    assert held == (set() if role == "witness" else {"part-0.parquet"})
    assert {each.name: each.behind[TABLE] for each in domain_states(placement)}[D] == 0


@pytest.mark.parametrize("died_in", ["add", "promote"])
def test_a_round_that_died_while_a_domain_joined_is_taken_up_by_the_next(home, monkeypatch, died_in):
    begun(home, VOTERS)
    placement = named_domains(home, {**VOTERS, D: "voter"})
    change = Membership._change

    def dies(self, locator):
        learns = locator.replica(D).role is Role.LEARNER
        if learns is (died_in == "add"):
            raise KeyboardInterrupt
        return change(self, locator)

    monkeypatch.setattr(Membership, "_change", dies)
    with pytest.raises(KeyboardInterrupt):
        reconcile_replicas(placement)
    monkeypatch.undo()
    monkeypatch.setenv("ETL_ASSETS_HOME", str(home))
    assert kept(placement).joined == (D,)
    assert roles(placement) == {**VOTERS, D: "voter"}


@pytest.mark.parametrize("role", ["voter", "witness", "learner"])
def test_a_lost_memory_rejoins_in_the_role_it_had_also_after_a_crash_on_the_way(home, monkeypatch, role):
    was = {A: "voter", B: "voter", C: "voter", D: role}
    placement = begun(home, was)
    shutil.rmtree(root_of(placement, D))
    placement.heal(D, new_root=True)
    placement.place(PlacementClass.INGEST)
    promote = Membership.promote
    monkeypatch.setattr(Membership, "promote", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    if role == "learner":
        reconcile_replicas(placement)
    else:
        with pytest.raises(KeyboardInterrupt):
            reconcile_replicas(placement)
        assert roles(placement)[D] == "learner"
    monkeypatch.setattr(Membership, "promote", promote)
    reconcile_replicas(placement)
    assert roles(placement) == was


def test_a_learner_that_is_to_vote_is_promoted(home):
    begun(home, {**VOTERS, D: "learner"})
    placement = named_domains(home, {**VOTERS, D: "voter"})
    assert kept(placement).joined == (D,)
    assert roles(placement)[D] == "voter"


def test_a_domain_that_cannot_join_yet_is_named_and_stops_nothing(home):
    begun(home, VOTERS)
    (home / "d").write_text("a file in the place of the folder")
    placement = named_domains(home, {**VOTERS, D: "voter"})
    assert f"{D} cannot join" in (kept(placement).problem or "")
    assert commit(placement, A) == 1
    (home / "d").unlink()
    placement.heal(D)
    assert kept(placement).joined == (D,)


def test_a_voter_does_not_become_less_by_itself(home):
    begun(home, VOTERS)
    placement = named_domains(home, {**VOTERS, C: "learner"})
    assert f"{C} is a voter and the platform file says learner" in (kept(placement).problem or "")
    assert roles(placement) == VOTERS


def test_no_stage_is_placed_where_the_replica_only_learns(home):
    begun(home, {**VOTERS, D: "learner"})
    placement = named_domains(home, {D: "voter", **VOTERS})
    gone(placement, A)
    assert place(placement, TABLE).name == B


def test_a_domain_is_removed_once_the_platform_file_does_not_name_it(home):
    placement = begun(home, {**VOTERS, D: "voter"})
    runner = CliRunner()
    refused = runner.invoke(command, ["remove", D])
    assert isinstance(refused.exception, InputError)
    assert "take it out of `domains`" in refused.exception.fix
    assert roles(placement)[D] == "voter"
    placement = named_domains(home, VOTERS)
    assert f"`etl-assets domains remove {D}`" in (kept(placement).problem or "")
    listed = runner.invoke(command, ["list"])
    assert listed.exit_code == 1
    assert "not in the platform file" in " ".join(listed.output.split())
    for said in (f"{TABLE}: has no replica in {D} now\n", f"no table has a replica in {D}\n"):
        done = runner.invoke(command, ["remove", D])
        assert (done.exit_code, done.output) == (0, said)
    assert roles(placement) == VOTERS
    assert reconcile_replicas(placement) == []


def test_a_leader_is_removed_after_another_domain_leads(home):
    begun(home, {**VOTERS, D: "voter"})
    rest = dict.fromkeys((B, C, D), "voter")
    placement = named_domains(home, rest)
    done = CliRunner().invoke(command, ["remove", A])
    assert done.exit_code == 0, done.output
    assert leader(placement, TABLE) == B
    assert roles(placement) == rest
    assert commit(placement, B) == 1


@pytest.mark.parametrize("slept", [False, True], ids=["awake", "asleep while it was taken out"])
def test_a_domain_that_was_taken_out_and_put_back_does_not_lead_before_it_is_a_member_again(home, slept):
    placement = begun(home, VOTERS)
    named_domains(home, dict.fromkeys((B, C), "voter"))
    if slept:
        gone(placement, A)
    assert CliRunner().invoke(command, ["remove", A]).exit_code == 0
    assert leader(placement, TABLE) == B
    placement = named_domains(home, VOTERS)
    if slept:
        back(placement, A)
    epochs = [promised(placement, name) for name in (B, C)]
    assert CliRunner().invoke(command, ["drain", B]).exit_code == 0
    assert place(placement, TABLE).name == C
    assert [promised(placement, name) for name in (B, C)] == epochs, "nobody was fenced"
    assert commit(placement, C) == 1
    assert kept(placement).joined == (A,)
    assert roles(placement) == VOTERS


def test_a_domain_that_slept_while_the_root_of_another_was_replaced_stops_nobody(home, monkeypatch):
    placement = begun(home, {**VOTERS, D: "voter"})
    gone(placement, A)
    named_domains(home, VOTERS)
    assert CliRunner().invoke(command, ["remove", D]).exit_code == 0
    placement = named_domains(home, {**VOTERS, D: "voter"}, roots={D: "another-d"})
    placement.place(PlacementClass.INGEST)
    assert kept(placement).joined == (D,)
    back(placement, A)
    # The one that slept answers first, and one answer is enough to tell that there is a table.
    monkeypatch.setattr(replication, "ThreadCouriers", Impatient)
    assert Replication(TABLE, placement.reader()).exists()


def test_a_dead_domain_is_replaced_by_another_one_while_rows_come_in(home):
    placement = begun(home, VOTERS)
    gone(placement, C)
    rest = dict.fromkeys((A, B, D), "voter")
    placement = named_domains(home, rest)
    assert kept(placement).joined == (D,)
    assert commit(placement, A) == 1, "A, B and D are three of four"
    done = CliRunner().invoke(command, ["remove", C])
    assert done.exit_code == 0, done.output
    assert roles(placement) == rest
    gone(placement, B)
    assert commit(placement, A) == 2, "A and D are two of three"


def test_the_last_other_copy_is_not_removed(home):
    begun(home, {A: "voter", B: "voter", C: "witness"})
    placement = named_domains(home, {A: "voter", C: "witness"})
    done = CliRunner().invoke(command, ["remove", B])
    assert done.exit_code == 1
    assert f"{TABLE}: not taken out:" in done.output
    assert "one voter with data would be left" in done.output
    assert roles(placement)[B] == "voter"


def test_two_voters_and_a_witness_go_on_without_one_voter_and_say_so(home):
    placement = begun(home, {A: "voter", B: "voter", C: "witness"})
    gone(placement, A)
    found = kept(placement)
    assert (found.one_copy, found.moved, found.problem) == (True, None, None)
    assert leader(placement, TABLE) == B
    assert commit(placement, B) == 1
    assert "only in local/b" in (one_loss(domain_states(placement)) or "")
    assert reconcile_replicas(placement) == [], "nothing is done twice"
    back(placement, A)
    assert kept(placement).one_copy is False
    assert one_loss(domain_states(placement)) is None
    assert root_of(placement, A).joinpath("tables", TABLE, "g000001", "part-1.parquet").is_file()


@pytest.mark.parametrize("failed", [False, True], ids=["in use", "failed by hand"])
@pytest.mark.parametrize("lost", [A, B], ids=["of the leader", "of the other voter"])
def test_two_voters_and_a_witness_go_on_after_the_disk_of_a_voter_was_replaced(home, lost, failed):
    placement = begun(home, {A: "voter", B: "voter", C: "witness"})
    other = A if lost == B else B
    shutil.rmtree(root_of(placement, lost))
    root_of(placement, lost).mkdir()
    placement.heal(lost, new_root=True)
    if failed:
        placement.memory.set_standing(lost, AdminState.FAILED)
    found = kept(placement)
    assert (found.rejoined, found.problem) == ((lost,), None)
    assert leader(placement, TABLE) == other
    assert roles(placement) == {A: "voter", B: "voter", C: "witness"}
    assert one_loss(domain_states(placement)) is None
    assert commit(placement, other) == 1
    held = {path.name for path in (root_of(placement, lost) / "tables" / TABLE).rglob("part-*")}
    assert held == {"part-0.parquet", "part-1.parquet"}


def test_two_voters_and_a_witness_go_on_while_the_register_of_a_voter_cannot_be_read(home):
    placement = begun(home, {A: "voter", B: "voter", C: "witness"})
    register = root_of(placement, A) / "register" / f"{TABLE}.json"
    register.write_bytes(register.read_bytes()[:40])
    found = kept(placement)
    assert found.one_copy is True
    assert f"`etl-assets tables repair {TABLE}`" in (found.problem or "")
    assert commit(placement, B) == 1
    repaired = CliRunner().invoke(tables, ["repair", TABLE])
    assert repaired.exit_code == 0, repaired.output
    assert kept(placement).one_copy is False


def test_a_voter_whose_disk_is_not_mounted_is_not_taken_for_one_that_lost_its_memory(home):
    placement = begun(home, {A: "voter", B: "voter", C: "witness"})
    root = root_of(placement, B)
    root.rename(root.with_name("away-b"))
    root.mkdir()
    found = kept(placement)
    assert found.one_copy is None
    assert "has no register" in (found.problem or "")
    root.rmdir()
    back(placement, B)
    assert reconcile_replicas(placement) == []
    assert commit(placement, A) == 1


def test_one_copy_is_not_enough_while_the_other_voter_may_only_be_slow(home):
    placement = begun(home, {A: "voter", B: "voter", C: "witness"})
    root_of(placement, A).rename(root_of(placement, A).with_name("away-a"))
    fails_once(placement, A)
    assert placement.watch.observations.of(A).state is HealthState.DEGRADED
    found = kept(placement)
    assert found.one_copy is None
    assert found.problem is not None


def test_two_voters_without_a_witness_do_not_go_on_with_one(home):
    placement = begun(home, {A: "voter", B: "voter"})
    gone(placement, A)
    assert all(each.problem and not each.one_copy for each in reconcile_replicas(placement))
    back(placement, A)
    assert reconcile_replicas(placement) == []
    assert commit(placement, A) == 1


def test_a_platform_file_that_forgets_all_other_domains_stops_the_stages_and_changes_nothing(home):
    begun(home, VOTERS)
    alone = named_domains(home, {A: "voter"})
    with pytest.raises(DomainUnavailable, match="mirrored over several failure domains") as refused:
        alone.place(PlacementClass.INGEST)
    assert "name the others again" in refused.value.message
    assert "names one" in (alone.stopped(PlacementClass.SINK) or "")
    placement = named_domains(home, VOTERS)
    assert commit(placement, A) == 1


@pytest.mark.parametrize("domain", [A, C], ids=["of the leader", "of another voter"])
def test_a_register_that_was_edited_or_cut_stops_nothing_and_is_made_anew_by_an_operator(home, domain):
    placement = begun(home, VOTERS)
    register = root_of(placement, domain) / "register" / f"{TABLE}.json"
    register.write_bytes(register.read_bytes()[:40])
    found = kept(placement)
    assert found.moved == (B if domain == A else None)
    assert f"{domain}: register/{TABLE}.json cannot be read" in (found.problem or "")
    assert f"`etl-assets tables repair {TABLE}`" in (found.problem or "")
    assert commit(placement, B) == 1
    # By itself nothing is written over what cannot be read: a newer release may be able to.
    assert len(register.read_bytes()) == 40
    runner = CliRunner()
    assert runner.invoke(tables, ["verify", TABLE]).exit_code == 1
    repaired = runner.invoke(tables, ["repair", TABLE])
    assert repaired.exit_code == 0, repaired.output
    assert runner.invoke(tables, ["verify", TABLE]).exit_code == 0
    assert roles(placement) == VOTERS
    assert reconcile_replicas(placement) == []


def test_the_register_of_another_table_is_named_and_left_as_it_is(home):
    placement = begun(home, VOTERS)
    register = root_of(placement, C) / "register" / f"{TABLE}.json"
    record = {**json.loads(register.read_text()), "table": "raw_events"}
    other = sealed({name: value for name, value in record.items() if name != "sha256"}).decode()
    register.write_text(other)
    assert "is that of the table raw_events" in (kept(placement).problem or "")
    assert commit(placement, A) == 1
    repaired = CliRunner().invoke(tables, ["repair", TABLE])
    assert repaired.exit_code == 1
    assert "not repaired" in repaired.output
    assert roles(placement) == VOTERS, "it was not even taken out"
    assert register.read_text() == other


def test_a_domain_that_copies_long_keeps_a_round_from_no_other_table_and_joins_once_it_is_done(
    home, monkeypatch
):
    placement = begun(home, VOTERS)
    let_go, put = threading.Event(), LocalStore.put

    def slow(self, key, chunks):
        if "part-" in key:
            assert let_go.wait(60)
        return put(self, key, chunks)

    monkeypatch.setattr(LocalStore, "put", slow)
    placement = named_domains(home, {**VOTERS, D: "voter"})
    placement.place(PlacementClass.INGEST)
    began = time.monotonic()
    for _ in range(2):
        # Long enough for the other tables' domains on a busy machine.
        first, *others = reconcile_replicas(placement, begin=TABLE, wait_seconds=3)
        assert first == ReconcileResult(table=TABLE, left=True)
        assert not any(each.left for each in others)
    assert time.monotonic() - began < DEFAULT_PATIENCE_SECONDS
    let_go.set()
    deadline = time.monotonic() + 30
    while roles(placement).get(D) != "voter":
        assert time.monotonic() < deadline
        reconcile_replicas(placement, begin=TABLE, wait_seconds=0.5)
    assert not mirrored(placement).broken()[D]
