"""A change of leader that was begun and never ended, while too few voters are there to tell what it would
have adopted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import dagster as dg
import pytest
from click.testing import CliRunner

from etl_assets.assets.stage_asset import stage_asset
from etl_assets.build import platform_resources
from etl_assets.cli.tables import tables
from etl_assets.delta.replicated.replication import Replication
from etl_assets.errors import DomainUnavailable, Leaderless, MembershipRefused, QuorumUnavailable
from etl_assets.mirroring.protocol.ballot import Ballot
from etl_assets.mirroring.protocol.epochs import Epoch
from etl_assets.mirroring.protocol.leadership import Leadership
from etl_assets.orders.steps.load_customers import LoadCustomers
from etl_assets.placement.domain_registry import AdminState
from etl_assets.placement.domains import Placement
from etl_assets.replicas.reconcile import reconcile_replicas
from etl_assets.settings import load_settings
from etl_assets.steps.placing import leader, once_led, place
from etl_assets.steps.step import StepReport, platform_table
from etl_assets.worker.step_runner import StepRunner
from etl_assets_tests.reference.mirrored_log import commit_entries
from etl_assets_tests.reference.three_domains import TABLE, A, B, C, named_domains, root_of, three_domains


class Killed(BaseException):
    """The process ends here."""


def killed(*_args: object, **_more: object) -> NoReturn:
    raise Killed


@pytest.fixture
def placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return three_domains(tmp_path)


def away(placement: Placement, name: str) -> Path:
    root = root_of(placement, name)
    return root.rename(root.with_name(f"{root.name}-away"))


def seen_from(placement: Placement, name: str) -> Replication:
    domain = placement.named(name)
    assert domain is not None
    mirrored = platform_table(TABLE, domain).replication
    assert mirrored is not None
    return mirrored


def commit(placement: Placement, name: str) -> int:
    mirrored = seen_from(placement, name)
    mirrored.create()
    return commit_entries(mirrored, 1)


def begin_to_lead(placement: Placement, name: str) -> None:
    """Claim the lead, and be killed before anything is done with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Leadership, "_write_home", killed)
        with pytest.raises(Killed):
            seen_from(placement, name).lead()


def claimed_halfway(placement: Placement) -> None:
    """C is away, A has voted for a version that B has not, and B has claimed the lead at both: all of them
    were killed.
    """
    commit(placement, A)
    assert reconcile_replicas(placement) == []
    away(placement, C)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ballot, "settle", killed)
        with pytest.raises(Killed):
            commit(placement, A)
    begin_to_lead(placement, B)


def promised(placement: Placement, name: str) -> Epoch:
    held = seen_from(placement, name).mirror.home.register.read()
    assert held is not None
    return held.record.promised


def test_readers_say_that_nobody_leads_and_who_claimed_last(placement):
    claimed_halfway(placement)
    for name in (A, B):
        with pytest.raises(Leaderless, match=f"{B} has claimed to lead") as error:
            seen_from(placement, name).acknowledged()
        assert error.value.claimant == B
        assert "relocate" in error.value.fix


def test_the_next_round_ends_it_where_it_was_begun(placement):
    claimed_halfway(placement)
    (kept,) = reconcile_replicas(placement)
    assert (kept.table, kept.moved, kept.problem) == (TABLE, B, None)
    assert leader(placement, TABLE) == B
    assert commit(placement, B) == 2, "the version that A voted for lives on"
    assert reconcile_replicas(placement) == []


def test_a_domain_that_may_not_run_the_stage_is_not_helped_to_lead(placement):
    claimed_halfway(placement)
    placement.memory.set_standing(B, AdminState.DRAINED)
    assert reconcile_replicas(placement) == [], "A led it before"
    assert leader(placement, TABLE) == A


def test_where_nobody_may_lead_nothing_is_claimed(placement):
    claimed_halfway(placement)
    before = [promised(placement, name) for name in (A, B)]
    for name in (A, B):
        placement.memory.set_standing(name, AdminState.FAILED)
    (kept,) = reconcile_replicas(placement)
    assert kept.problem is not None
    assert "failed by an operator" in kept.problem
    assert [promised(placement, name) for name in (A, B)] == before


def test_without_a_majority_nothing_is_claimed(placement):
    claimed_halfway(placement)
    before = promised(placement, A)
    away(placement, B)
    (kept,) = (each for each in reconcile_replicas(placement) if each.table == TABLE)
    assert kept.problem is not None
    assert "too few voters" in kept.problem
    with pytest.raises(QuorumUnavailable) as error:
        seen_from(placement, A).acknowledged()
    assert not isinstance(error.value, Leaderless)
    assert promised(placement, A) == before


def test_two_rounds_at_once_end_it_in_one_domain(placement):
    """Whoever helps helps the one that claimed last, so that they do not take the lead from each other."""
    claimed_halfway(placement)
    assert {place(placement, TABLE).name for _ in range(2)} == {B}
    reconcile_replicas(placement)
    epoch = promised(placement, B)
    assert reconcile_replicas(placement) == []
    assert promised(placement, B) == epoch == promised(placement, A)


def test_a_claim_under_way_is_not_taken_for_one_that_ended(placement):
    """Readers that meet one while all voters are there can tell what was acknowledged."""
    commit(placement, A)
    reconcile_replicas(placement)
    begin_to_lead(placement, B)
    assert seen_from(placement, A).acknowledged() is not None


def test_a_look_at_what_is_to_be_done_has_each_table_led_once(placement):
    claimed_halfway(placement)
    looked = []

    def look() -> int:
        looked.append(None)
        state = seen_from(placement, A).acknowledged()
        assert state is not None
        return state.version

    assert once_led(placement, look) == 1
    assert len(looked) == 2

    def never() -> NoReturn:
        looked.append(None)
        raise Leaderless("x", fix="x", table=TABLE, claimant=B, leader=A)

    with pytest.raises(Leaderless):
        once_led(placement, never)
    assert len(looked) == 4


def run_of_dagster(placement: Placement) -> bool:
    settings = load_settings()
    asset = stage_asset(settings.catalog().stage("customers"), settings)
    return dg.materialize([asset], resources=platform_resources(settings)).success


def run_of_the_worker(placement: Placement) -> bool:
    crew = StepRunner(
        settings=load_settings(),
        session=killed,
        renew=killed,
        wait=lambda seconds: None,
        leaving=lambda: False,
    )
    done = crew.run(TABLE, [])
    assert not done.failed
    return done.report is not None


# Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")
@pytest.mark.parametrize("run", [run_of_dagster, run_of_the_worker])
def test_a_run_that_meets_it_leads_by_itself(
    placement, monkeypatch, run: Callable[[Placement], bool], tmp_path
):
    claimed_halfway(placement)
    platform = tmp_path / "platform.yaml"
    platform.write_text(f"{platform.read_text()}\nruns: {{retry_delay_seconds: 0.01}}\n")
    seen = []

    def step(self: LoadCustomers, _days: Any) -> StepReport:
        seen.append(None)
        version = self.context.table(TABLE).version()
        seen[-1] = (self.context.domain.name, version)
        return StepReport(table=TABLE, version=version)

    monkeypatch.setattr(LoadCustomers, "run", step)
    assert run(placement)
    assert seen == [None, (B, 1)], "the first attempt meets it, the second goes on"


def test_a_run_in_a_domain_that_may_not_lead_its_table_any_more_is_placed_elsewhere(placement):
    claimed_halfway(placement)
    placement.memory.set_standing(B, AdminState.DRAINED)
    assert place(placement, TABLE).name == A


def put_back(placement: Placement, tmp_path: Path) -> Placement:
    """C was taken out of the platform file and of every table; now the file names it again, and no round has
    come yet.
    """
    commit(placement, A)
    reconcile_replicas(placement)
    mirrored = seen_from(placement, A)
    mirrored.membership.remove(C)
    commit(placement, A)
    return named_domains(tmp_path, dict.fromkeys((A, B, C), "voter"))


def test_a_domain_that_is_no_voter_any_more_is_refused_the_lead_before_anything_is_written(
    placement, tmp_path
):
    placement = put_back(placement, tmp_path)
    before = [promised(placement, name) for name in (A, B, C)]
    refused = CliRunner().invoke(tables, ["relocate", TABLE, "--to", C])
    assert isinstance(refused.exception, MembershipRefused), refused.exception
    assert f"{C} cannot lead {TABLE}: it has no replica" in refused.exception.message
    assert [promised(placement, name) for name in (A, B, C)] == before
    assert leader(placement, TABLE) == A
    assert commit(placement, A) == 2


def test_so_is_one_whose_memory_was_lost(placement):
    commit(placement, A)
    reconcile_replicas(placement)
    shutil.rmtree(root_of(placement, C) / "register")
    before = [promised(placement, name) for name in (A, B)]
    refused = CliRunner().invoke(tables, ["relocate", TABLE, "--to", C])
    assert isinstance(refused.exception, MembershipRefused), refused.exception
    assert "has no register" in refused.exception.message
    assert [promised(placement, name) for name in (A, B)] == before


def test_by_hand_a_table_whose_change_of_leader_was_left_is_relocated_all_the_same(placement):
    claimed_halfway(placement)
    done = CliRunner().invoke(tables, ["relocate", TABLE, "--to", A])
    assert done.exit_code == 0, done.exception
    assert leader(placement, TABLE) == A
    placement.memory.set_standing(B, AdminState.DRAINED)
    refused = CliRunner().invoke(tables, ["relocate", TABLE, "--to", B])
    assert isinstance(refused.exception, DomainUnavailable)
