"""One round of looking after mirrored tables: replicas follow, leaders move, emptied roots are filled
again.
"""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from etl_assets.cli.domains import domains as command
from etl_assets.cli.tables import tables
from etl_assets.delta.log.lasting_cursors import REMEMBERED_COMMITS
from etl_assets.delta.replicated.replication import Replication
from etl_assets.errors import DomainUnavailable, NotFound
from etl_assets.mirroring.protocol.checkpoints import EVERY
from etl_assets.observability.domain_states import domain_states, one_loss
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domain_registry import AdminState
from etl_assets.placement.domains import Placement
from etl_assets.replicas.reconcile import ReconcileResult, reconcile_replicas, resume_from
from etl_assets.settings import MIN_KEPT_VERSIONS, load_settings
from etl_assets.steps.placing import leader, place
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.mirrored_log import commit_entries, single_log
from etl_assets_tests.reference.tables import ALL_TABLES
from etl_assets_tests.reference.three_domains import TABLE, A, B, C, commit, root_of, three_domains


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    """Three domains of this machine, their roots in use."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return three_domains(tmp_path)


def files(placement: Placement, name: str) -> dict[str, bytes]:
    """What lies in a domain's newest folder of the table."""
    domain = placement.named(name)
    assert domain is not None
    folder = max((domain.root / "tables" / TABLE).glob("g*"))
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_with_nothing_to_do_nothing_is_told(placement):
    assert reconcile_replicas(placement) == []
    commit(placement, A, followed=False)
    # A commit is acknowledged by two of three; a round waits for the third.
    assert reconcile_replicas(placement) == []
    assert files(placement, A) == files(placement, B) == files(placement, C)
    assert one_loss(domain_states(placement)) is None


def test_a_table_of_the_one_domain_that_there_was_is_brought_to_all(placement):
    single_log(root_of(placement, C), 3, name=TABLE)
    assert reconcile_replicas(placement) == []
    assert leader(placement, TABLE) is None, "it needs no leader"
    assert one_loss(domain_states(placement)) is None
    assert files(placement, A) == files(placement, B) == files(placement, C)
    assert commit(placement, A) == 4


def test_a_replica_that_was_away_is_brought_up_to_the_same_bytes(placement):
    commit(placement, A)
    away = root_of(placement, C).rename(root_of(placement, C).with_name("away"))
    for _ in range(3):
        commit(placement, A)
    behind = {state.name: state.behind[TABLE] for state in domain_states(placement)}
    assert behind == {A: 0, B: 0, C: None}
    away.rename(root_of(placement, C))
    assert reconcile_replicas(placement) == []
    assert files(placement, C) == files(placement, A)


def test_the_lead_moves_from_a_lost_domain_to_one_that_may(placement):
    commit(placement, A)
    away = root_of(placement, A).rename(root_of(placement, A).with_name("away"))
    (kept,) = reconcile_replicas(placement)
    assert (kept.table, kept.moved) == (TABLE, B)
    assert commit(placement, B) == 1
    assert place(placement, TABLE).name == B
    away.rename(root_of(placement, A))
    assert leader(placement, TABLE) == B, "the stage stays where it is"
    reconcile_replicas(placement)
    assert files(placement, A) == files(placement, B)


@pytest.mark.parametrize("standing", [AdminState.FAILED, AdminState.DRAINED])
def test_the_lead_moves_from_a_domain_that_an_operator_took_out(placement, standing):
    commit(placement, A)
    placement.memory.set_standing(A, standing)
    (kept,) = reconcile_replicas(placement)
    assert kept.moved == B
    assert commit(placement, B) == 1
    reconcile_replicas(placement)
    assert files(placement, A) == files(placement, B), "its replica is kept up as long as it answers"


def test_an_emptied_root_votes_again_only_after_an_operator_said_so_and_it_was_rebuilt(placement):
    commit(placement, A)
    shutil.rmtree(root_of(placement, C))
    root_of(placement, C).mkdir()
    assert reconcile_replicas(placement) == []
    assert not (root_of(placement, C) / "tables").exists()
    runner = CliRunner()
    assert "emptied" in runner.invoke(command, ["probe", C]).output
    result = runner.invoke(command, ["heal", C, "--new-root"])
    assert result.output == f"{C}: in use\n"
    (kept,) = reconcile_replicas(placement)
    assert kept.rejoined == (C,)
    assert files(placement, C) == files(placement, A)
    assert reconcile_replicas(placement) == []
    shutil.rmtree(root_of(placement, B))
    assert commit(placement, A) == 1, "C counts again: A and C are a majority"


def test_a_table_that_nobody_has_written_yet_gets_a_lost_register_again_as_well(placement):
    table = platform_table(TABLE, placement.domains[0]).replication
    assert table is not None
    table.create()
    assert reconcile_replicas(placement) == []
    assert leader(placement, TABLE) is None, "it needs no leader"
    shutil.rmtree(root_of(placement, C))
    placement.heal(C, new_root=True)
    placement.place(PlacementClass.INGEST)
    (kept,) = reconcile_replicas(placement)
    assert (kept.rejoined, kept.moved) == ((C,), None)
    shutil.rmtree(root_of(placement, B))
    assert table.acknowledged() is not None, "C counts again: A and C are a majority"


def test_a_leader_whose_root_was_emptied_hands_over_and_rejoins(placement):
    commit(placement, A)
    root = root_of(placement, A)
    shutil.rmtree(root)
    placement.heal(A, new_root=True)
    placement.place(PlacementClass.INGEST)
    (kept,) = [each for each in reconcile_replicas(placement) if each.table == TABLE]
    assert (kept.moved, kept.rejoined, kept.problem) == (B, (A,), None)
    assert leader(placement, TABLE) == B
    assert reconcile_replicas(placement) == []
    assert files(placement, A) == files(placement, B) == files(placement, C)


def test_a_table_is_not_taken_for_absent_because_most_of_its_roots_were_replaced(placement):
    commit(placement, A)
    for name in (B, C):
        shutil.rmtree(root_of(placement, name))
        placement.heal(name, new_root=True)
    placement.place(PlacementClass.INGEST)
    for _ in range(20):
        assert Replication(TABLE, placement.domains[0]).exists()


def test_a_reader_that_binds_to_another_generation_says_so_once(placement, caplog):
    commit(placement, A)
    reader = Replication(TABLE, placement.domains[1])
    caplog.set_level("INFO", "etl_assets")
    for _ in range(2):
        reader.bind()
    assert caplog.messages == []
    root_of(placement, A).rename(root_of(placement, A).with_name("away"))
    reconcile_replicas(placement)
    caplog.clear()
    for _ in range(2):
        assert reader.bind() is not None
    assert caplog.messages == [f"{TABLE}: rebound from generation 2 in {B} to generation 3 in {B}"]


def test_without_a_majority_the_table_is_named_and_nothing_is_done(placement):
    commit(placement, A)
    for name in (B, C):
        root_of(placement, name).rename(root_of(placement, name).with_name(f"away-{name[-1]}"))
    assert leader(placement, TABLE) is None
    kept = {each.table: each.problem or "" for each in reconcile_replicas(placement)}
    assert B in kept[TABLE]
    danger = one_loss(domain_states(placement))
    assert danger is not None


def test_one_glance_says_whether_one_loss_would_lose_anything(placement):
    runner = CliRunner()
    commit(placement, A)
    result = runner.invoke(command, ["list"])
    assert result.exit_code == 0, result.output
    assert "Losing any one domain now would lose nothing." in result.output
    for name in (B, C):
        shutil.rmtree(root_of(placement, name))
    result = runner.invoke(command, ["list", "--json"])
    assert result.exit_code == 1
    assert {state["name"]: bool(state["problem"]) for state in json.loads(result.stdout)} == {
        A: False,
        B: True,
        C: True,
    }


@pytest.mark.parametrize("edited", ["{}", "[]", "{'no json"])
def test_a_replica_that_was_edited_or_cut_is_named_and_built_anew(placement, edited):
    commit(placement, A)
    commit(placement, A)
    reconcile_replicas(placement)
    runner = CliRunner()
    assert runner.invoke(tables, ["verify", TABLE]).exit_code == 0
    (folder,) = (root_of(placement, B) / "tables" / TABLE).glob("g*")
    (folder / "part-1.parquet").write_bytes(b"ro")
    (root_of(placement, C) / "tables" / TABLE / folder.name / "_delta_log" / f"{0:020d}.json").write_text(
        edited
    )
    found = runner.invoke(tables, ["verify", TABLE])
    assert found.exit_code == 1
    told = dict(line.split(": ", 1) for line in found.output.splitlines())
    assert told[f"{TABLE} in {A}"] == "whole"
    assert "part-1.parquet" in told[f"{TABLE} in {B}"]
    assert "not the one that was published" in told[f"{TABLE} in {C}"]
    repaired = runner.invoke(tables, ["repair", TABLE])
    assert repaired.exit_code == 0, repaired.output
    assert runner.invoke(tables, ["verify", TABLE]).exit_code == 0
    assert files(placement, A) == files(placement, B) == files(placement, C)


@pytest.mark.parametrize("domain", [A, B, C])
def test_a_data_file_edited_to_the_same_size_is_found_by_its_bytes_and_replaced(placement, domain):
    """In the leader's replica as in any other."""
    for _ in range(3):
        commit(placement, A)
    reconcile_replicas(placement)
    whole = files(placement, A)
    (folder,) = (root_of(placement, domain) / "tables" / TABLE).glob("g*")
    (folder / "part-2.parquet").write_bytes(b"ROWSrows")
    runner = CliRunner()
    assert runner.invoke(tables, ["verify", TABLE]).exit_code == 0, "sizes do not tell"
    found = runner.invoke(tables, ["verify", TABLE, "--contents"])
    assert found.exit_code == 1
    told = dict(line.split(": ", 1) for line in found.output.splitlines())
    others = " and ".join(each for each in (A, B, C) if each != domain)
    assert told.pop(f"{TABLE} in {domain}") == f"part-2.parquet has other bytes than in {others}"
    assert set(told.values()) == {"whole"}
    repaired = runner.invoke(tables, ["repair", TABLE, "--contents"])
    assert repaired.exit_code == 0, repaired.output
    assert repaired.output.endswith("; replaced\n")
    assert files(placement, A) == files(placement, B) == files(placement, C) == whole
    again = runner.invoke(tables, ["repair", TABLE, "--contents"])
    assert (again.exit_code, again.output) == (0, "")


def test_of_two_copies_that_differ_neither_is_taken_for_the_right_one(placement):
    commit(placement, A)
    commit(placement, A)
    reconcile_replicas(placement)
    root_of(placement, C).rename(root_of(placement, C).with_name("away"))
    (folder,) = (root_of(placement, B) / "tables" / TABLE).glob("g*")
    (folder / "part-1.parquet").write_bytes(b"ROWS")
    runner = CliRunner()
    found = runner.invoke(tables, ["verify", TABLE, "--contents"])
    assert found.exit_code == 1
    for domain in (A, B):
        assert f"{TABLE} in {domain}: part-1.parquet has other bytes in each of {A}, {B}" in found.output
    refused = runner.invoke(tables, ["repair", TABLE, "--contents"])
    assert refused.exit_code == 1
    assert "which are right cannot be told; not repaired (look at both" in refused.output
    assert files(placement, A)["part-1.parquet"] == b"rows"
    assert files(placement, B)["part-1.parquet"] == b"ROWS"


def test_a_round_makes_the_checkpoint_that_is_due_in_every_domain(placement):
    mirrored = platform_table(TABLE, placement.domains[0]).replication
    assert mirrored is not None
    mirrored.create()
    commit_entries(mirrored, EVERY + 1)
    assert reconcile_replicas(placement) == []
    (name,) = (name for name in files(placement, A) if name.endswith(".checkpoint.parquet"))
    assert files(placement, A)[name] == files(placement, B)[name] == files(placement, C)[name]


def test_a_checkpoint_that_cannot_be_made_is_named_and_stops_nothing(placement):
    for _ in range(EVERY + 1):
        commit(placement, A)  # entries that Delta cannot read: there is no schema in them
    root_of(placement, A).rename(root_of(placement, A).with_name("away"))
    (kept,) = reconcile_replicas(placement)
    assert kept.moved == B
    assert kept.problem is not None
    assert "checkpoint" in kept.problem
    assert commit(placement, B) == EVERY + 1


@pytest.mark.parametrize("name", [".nfs0000000012", ".DS_Store", "00000000000000000000.json"])
def test_a_stray_file_among_the_staged_entries_is_nobodys_business(placement, name):
    commit(placement, A)
    stray = root_of(placement, C) / "tables" / TABLE / "staged" / name
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"x")
    assert reconcile_replicas(placement) == []
    assert stray.exists()


def test_without_room_for_a_checkpoint_that_is_named_and_stops_nothing(placement, monkeypatch):
    mirrored = platform_table(TABLE, placement.domains[0]).replication
    assert mirrored is not None
    mirrored.create()
    commit_entries(mirrored, EVERY + 1)
    monkeypatch.setattr("tempfile.tempdir", "/dev/full")
    (kept,) = reconcile_replicas(placement)
    assert kept.table == TABLE
    assert kept.problem is not None
    assert "/dev/full" in kept.problem
    monkeypatch.undo()


def test_what_nobody_has_thought_of_at_one_table_stops_no_other(placement, monkeypatch, caplog):
    commit(placement, A)
    monkeypatch.setattr(Replication, "follow", lambda self: int(".nfs") if self.name == TABLE else None)
    names = [contract.name for contract in ALL_TABLES]
    kept = reconcile_replicas(placement, begin=TABLE, seconds=-1)
    assert [each.table for each in kept] == [*names[names.index(TABLE) :], *names[: names.index(TABLE)]]
    assert kept[0].problem is not None
    assert kept[0].problem.startswith("ValueError: ")
    assert caplog.records[-1].exc_info is not None
    assert all(each.left for each in kept[1:])


def test_a_round_that_takes_too_long_is_gone_on_with_where_it_ended(placement):
    commit(placement, A)
    names = [contract.name for contract in ALL_TABLES]
    left = [each.table for each in reconcile_replicas(placement, seconds=-1)]
    assert left == names[1:], "one table is looked after in any case"
    away = root_of(placement, A).rename(root_of(placement, A).with_name("away"))
    (first, *rest) = reconcile_replicas(placement, begin=TABLE, seconds=-1)
    assert (first.table, first.moved) == (TABLE, B)
    assert [each.table for each in rest] == [*names[names.index(TABLE) + 1 :], *names[: names.index(TABLE)]]
    assert all(each.left for each in rest)
    away.rename(root_of(placement, A))
    assert reconcile_replicas(placement, begin="a table that is no more") == []


def test_a_table_that_takes_long_does_not_keep_those_behind_it_from_being_begun_with():
    def kept(*left: bool) -> list[ReconcileResult]:
        return [ReconcileResult(table=name, left=each) for name, each in zip("abcd", left, strict=True)]

    assert resume_from(kept(True, False, True, True)) == "c"
    assert resume_from(kept(False, True, False, False)) is None
    assert resume_from(kept(True, True, True, True)) == "a"
    assert resume_from([]) is None


def test_a_table_is_relocated_only_to_a_domain_that_may_and_can(placement):
    commit(placement, A)
    runner = CliRunner()
    result = runner.invoke(tables, ["relocate", TABLE, "--to", C])
    assert result.exit_code == 0, result.output
    assert leader(placement, TABLE) == C
    placement.memory.set_standing(B, AdminState.DRAINED)
    refused = runner.invoke(tables, ["relocate", TABLE, "--to", B])
    assert isinstance(refused.exception, DomainUnavailable)
    assert leader(placement, TABLE) == C


def test_a_table_that_is_not_there_yet_is_not_relocated(placement):
    refused = CliRunner().invoke(tables, ["relocate", TABLE, "--to", B])
    assert isinstance(refused.exception, NotFound)
    assert f"{TABLE} is not there yet" in str(refused.exception)


def test_before_the_first_run_there_are_no_tables_and_that_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    domains = [{"name": name, "root": name[-1]} for name in (A, B, C)]
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump({"domains": domains}), "utf-8")
    runner = CliRunner()
    shown = runner.invoke(tables, ["--json"])
    assert shown.exit_code == 0, shown.output
    assert {state["version"] for state in json.loads(shown.stdout)} == {None}
    assert runner.invoke(command, ["list"]).exit_code == 0
    assert reconcile_replicas(load_settings().placement()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["platform.yaml"]


def test_an_unknown_domain_is_named_with_those_there_are(placement):
    result = CliRunner().invoke(command, ["fail", "local/x"])
    assert isinstance(result.exception, NotFound)
    assert "local/a, local/b, local/c" in result.exception.fix


def test_processes_that_make_a_table_at_once_make_one(placement):
    for number in range(10):
        made = [Replication(f"table{number}", domain) for domain in placement.domains for _ in range(3)]
        with ThreadPoolExecutor(len(made)) as threads:
            done = [threads.submit(each.create) for each in made]
        assert [str(each.exception()) for each in done if each.exception()] == []
        assert made[0].lead().version == -1


def test_logs_are_shortened_by_a_round_once_that_pays_and_by_the_command_at_once(placement, tmp_path):
    domain = placement.named(A)
    assert domain is not None
    mirrored = platform_table(TABLE, domain).replication
    assert mirrored is not None
    mirrored.create()
    newest = commit_entries(mirrored, 104)
    assert reconcile_replicas(placement, keep_log_versions=100) == []
    runner, command = CliRunner(), ["clean-log", TABLE, "--keep-versions"]
    assert runner.invoke(tables, [*command, "99"]).exit_code == 2
    counted = runner.invoke(tables, [*command, "100"])
    assert f"{TABLE}: the log would begin at version 3 (--delete)" in counted.output
    assert f"{TABLE} in {B}: 3 files of the log would be removed" in counted.output
    assert [entries_of(placement, name)[0] for name in (A, B, C)] == [0, 0, 0]
    removed = runner.invoke(tables, [*command, "100", "--delete"])
    assert removed.exit_code == 0, removed.output
    assert f"{TABLE}: the log begins at version 3" in removed.output
    assert [entries_of(placement, name)[0] for name in (A, B, C)] == [3, 3, 3]
    assert reconcile_replicas(placement, keep_log_versions=newest - 3 - EVERY) == []
    for name in (A, B, C):
        assert entries_of(placement, name) == list(range(3 + EVERY, newest + 1))
    assert runner.invoke(tables, ["verify", TABLE]).exit_code == 0


def test_the_settings_keep_at_least_the_commits_that_cursors_are_read_from():
    assert MIN_KEPT_VERSIONS >= REMEMBERED_COMMITS


def entries_of(placement: Placement, name: str) -> list[int]:
    """Versions in a domain's newest log of the table."""
    folder = max((root_of(placement, name) / "tables" / TABLE).glob("g*"))
    return sorted(int(path.stem) for path in (folder / "_delta_log").glob("*.json"))
