"""What the store of effects promises, over the table and over its twin in memory."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from etl_assets.contracts.tables import EFFECTS
from etl_assets.contracts.tables.effects import EffectState
from etl_assets.delta.log.entries import commit_notes
from etl_assets.delta.table import Table
from etl_assets.effects.effect import Effect, forgotten
from etl_assets.effects.process import is_gone, this_process
from etl_assets.effects.store import Completed, EffectsLog, EffectStore, Reserved, fingerprint
from etl_assets.effects.table import EffectsTable
from etl_assets.errors import EffectInProgress, EffectKeyReused, EffectTakenOver, Fenced, QuorumUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.placement.domains import FailureDomain
from etl_assets.testing.memory_effects import MemoryEffectsTable
from etl_assets_tests.reference.tables import local_domain
from etl_assets_tests.reference.three_domains import A, B, C, root_of, three_domains
from etl_assets_tests.reference.written_tables import NOON

CONTENT, OTHER = fingerprint(b"content"), fingerprint(b"other")
Logs = Callable[[], EffectsLog]


def effects_table(domain: FailureDomain) -> Table:
    return Table(name=EFFECTS.name, domain=domain, contract=EFFECTS)


@pytest.fixture(params=["in memory", "table"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Logs:
    """Gives every caller a log of its own to the same effects, as every process has one."""
    if request.param == "in memory":
        table = MemoryEffectsTable()
        table.claim("local")
        return lambda: table.process("local")
    domain = local_domain(tmp_path / "data")
    return lambda: EffectsTable(effects_table(domain))


class Time:
    """A clock that goes on only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def store(log: EffectsLog, process: str = "p", time: Time | None = None, **others: Any) -> EffectStore:
    time = time or Time()
    fields: dict[str, Any] = {
        "sink": "sink",
        "domain": "local",
        "process_is_gone": lambda _: False,
        "monotonic": time.monotonic,
        "sleep": time.sleep,
    }
    return EffectStore(log, process=process, **{**fields, **others})


def test_an_effect_is_to_be_done_until_it_was_done(log):
    first = store(log())
    assert first.reserve("k", CONTENT) == Reserved(key="k", attempt=1)
    assert first.complete("k", {"rows": 3}) == {"rows": 3}
    assert store(log(), "q").reserve("k", CONTENT) == Completed(key="k", result={"rows": 3})
    assert first.reserve("k", CONTENT) == Completed(key="k", result={"rows": 3})


def test_what_was_completed_first_is_kept(log):
    first = store(log())
    first.reserve("k", CONTENT)
    first.complete("k", 1)
    assert first.complete("k", 2) == 1


@pytest.mark.parametrize("completed", [False, True])
def test_a_key_stands_for_one_content(log, completed):
    first = store(log())
    first.reserve("k", CONTENT)
    if completed:
        first.complete("k", None)
    with pytest.raises(EffectKeyReused, match="'k' of sink stands for another content"):
        store(log(), "q").reserve_all({"new": CONTENT, "k": OTHER})
    assert store(log(), "r").reserve("new", OTHER) == Reserved(key="new", attempt=1), "all or none"


def test_sinks_have_keys_of_their_own(log):
    store(log()).reserve("k", CONTENT)
    assert store(log(), "q", sink="another").reserve("k", OTHER) == Reserved(key="k", attempt=1)


def test_many_keys_are_one_answer_and_done_ones_are_not_done_again(log):
    first = store(log())
    first.reserve_all({"a": CONTENT, "b": CONTENT})
    first.complete("a", "of a")
    answers = first.reserve_all({"a": CONTENT, "b": CONTENT, "c": CONTENT})
    assert answers == {
        "a": Completed(key="a", result="of a"),
        "b": Reserved(key="b", attempt=2),
        "c": Reserved(key="c", attempt=1),
    }
    assert first.complete_all({"b": 2, "c": 3}) == {"b": 2, "c": 3}
    assert first.reserve_all({}) == {}


def test_an_owner_that_may_be_alive_keeps_its_effect_until_it_has_been_silent_for_long_enough(log):
    time = Time()
    first, second = store(log(), expires_seconds=10), store(log(), "q", time, expires_seconds=10)
    first.reserve("k", CONTENT)
    time.now = 1_000_000
    with pytest.raises(EffectInProgress, match="is being done by p/"):
        second.reserve("k", CONTENT, wait_seconds=9)
    assert time.now == 1_000_009
    first.reserve("k", CONTENT)
    with pytest.raises(EffectInProgress):
        second.reserve("k", CONTENT, wait_seconds=9)
    assert second.reserve("k", CONTENT) == Reserved(key="k", attempt=3)
    with pytest.raises(EffectTakenOver, match=r"q/.* in local has taken it over"):
        first.complete("k", 1)
    assert second.complete("k", 2) == 2
    assert first.reserve("k", CONTENT) == Completed(key="k", result=2)


def test_several_owners_that_died_are_waited_for_once(log):
    time = Time()
    for name in "ab":
        store(log(), name).reserve(name, CONTENT)
    assert set(store(log(), "q", time).reserve_all({"a": CONTENT, "b": CONTENT})) == {"a", "b"}
    assert time.now < 62


def test_a_process_that_has_ended_is_not_waited_for(log):
    store(log(), "dead").reserve("k", CONTENT)
    time = Time()
    after = store(log(), "q", time, process_is_gone=lambda process: process.startswith("dead/"))
    assert after.reserve("k", CONTENT) == Reserved(key="k", attempt=2)
    assert time.now == 0


def test_what_was_not_reserved_cannot_be_completed(log):
    with pytest.raises(EffectTakenOver, match="has not reserved it"):
        store(log()).complete("k", 1)
    store(log(), "q").reserve("k", CONTENT)
    with pytest.raises(EffectTakenOver, match="has not reserved it"):
        store(log()).complete("k", 1)


def test_an_ended_process_is_known_and_others_are_not_taken_for_ended():
    ended = subprocess.run(
        [sys.executable, "-c", "from etl_assets.effects.process import this_process; print(this_process())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert is_gone(f"{ended}/store")
    assert not is_gone(f"{this_process()}/store")
    machine, _, rest = ended.partition("/")
    assert not is_gone(f"other-{machine}/{rest}")
    assert not is_gone("anything")


def test_where_a_system_does_not_tell_of_its_processes_none_is_taken_for_ended(monkeypatch):
    monkeypatch.setattr("etl_assets.processes._PROC", Path("/nowhere"))
    assert not is_gone(f"{this_process()}/store")


@pytest.fixture
def domain(tmp_path: Path) -> FailureDomain:
    return local_domain(tmp_path / "data")


def rows_of(table: Table) -> list[dict]:
    from deltalake import DeltaTable

    return DeltaTable(str(table.path), version=table.version()).to_pyarrow_table().to_pylist()


def test_the_table_has_one_row_a_key_in_few_files_however_many_commits_there_were(domain):
    table = effects_table(domain)
    one = store(EffectsTable(table))
    for number in range(24):
        one.reserve(f"k{number}", CONTENT)
        one.complete(f"k{number}", number)
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.version == 48
    assert sorted((row["key"], row["state"], row["result"]) for row in rows_of(table)) == sorted(
        (f"k{number}", "completed", str(number)) for number in range(24)
    )
    assert len(list(snapshot.files())) <= 5
    again = store(EffectsTable(table), "q")
    assert again.reserve("k7", CONTENT) == Completed(key="k7", result=7)


def test_of_two_workers_at_once_one_does_each_effect(domain):
    done: list[str] = []

    def work(process: str) -> None:
        own = store(EffectsTable(effects_table(domain)), process)
        for number in range(8):
            key = f"k{number}"
            try:
                answer = own.reserve(key, CONTENT, wait_seconds=0)
            except EffectInProgress:
                continue
            if isinstance(answer, Reserved):
                done.append(key)
                own.complete(key, process)

    workers = [Thread(target=work, args=(process,)) for process in "pq"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(done) == [f"k{number}" for number in range(8)]
    assert {row["state"] for row in rows_of(effects_table(domain))} == {"completed"}


def test_what_was_completed_long_ago_is_forgotten_by_count_and_what_is_being_done_is_not(domain):
    table = effects_table(domain)
    one = store(EffectsTable(table, keep=10))
    one.reserve("open", CONTENT)
    other = store(EffectsTable(table, keep=10), sink="other")
    other.reserve("k0", CONTENT)
    other.complete("k0", 0)
    for number in range(0, 24, 2):
        one.reserve_all({f"k{number + each}": CONTENT for each in range(2)})
        one.complete_all({f"k{number + each}": number for each in range(2)})
    mine = {row["key"] for row in rows_of(table) if row["sink"] == "sink"}
    assert {f"k{number}" for number in range(14, 24)} | {"open"} <= mine
    assert "k0" not in mine
    assert len(mine) <= 13
    assert other.reserve("k0", CONTENT) == Completed(key="k0", result=0)


def test_those_completed_last_are_kept():
    done, open_ = EffectState.COMPLETED, EffectState.RESERVED
    effects = [
        Effect(
            sink="s",
            key=key,
            fingerprint=CONTENT,
            state=state,
            attempt=1,
            token=key,
            owner_domain="local",
            owner_epoch="",
            owner_process="p",
            result=None,
            reserved_at=NOON,
            completed_at=None,
            batch_id=batch_id,
        )
        for key, state, batch_id in [("a", done, 3), ("b", done, 1), ("c", open_, 0), ("d", done, 2)]
    ]
    assert [effect.key for effect in forgotten(effects, 2)] == ["b"]
    assert forgotten(effects, 3) == []


@pytest.fixture
def three(tmp_path: Path):
    (tmp_path / "home").mkdir()
    return three_domains(tmp_path / "home")


def in_domain(placement, name: str, process: str, **others) -> EffectStore:
    return store(EffectsTable(effects_table(placement.named(name))), process, domain=name, **others)


def test_in_another_domain_what_was_done_is_known_and_what_was_not_is_taken_over_at_once(three):
    first = in_domain(three, A, "p")
    first.reserve_all({"done": CONTENT, "open": CONTENT})
    first.complete("done", "result")
    shutil.rmtree(root_of(three, A))
    time = Time()
    second = in_domain(three, B, "q", time=time)
    assert second.reserve_all({"done": CONTENT, "open": CONTENT}) == {
        "done": Completed(key="done", result="result"),
        "open": Reserved(key="open", attempt=2),
    }
    assert time.now == 0, "its owner is fenced"
    assert second.complete("open", 1) == 1
    (row,) = (row for row in rows_of(effects_table(three.named(B))) if row["key"] == "open")
    assert (row["owner_domain"], row["owner_epoch"].partition("/")[2], row["attempt"]) == (B, B, 2)


def test_domains_whose_clocks_differ_by_hours_take_turns_and_times_in_the_log_only_grow(three, monkeypatch):
    """Each domain's processes run by a clock of their own; who leads changes with every effect."""
    hours, clock = {A: 5, B: -7, C: 0}, time.time_ns
    for number, name in enumerate([A, B, C, B, A, C]):
        monkeypatch.setattr(time, "time_ns", lambda name=name: clock() + hours[name] * 3_600_000_000_000)
        effects = in_domain(three, name, f"p{number}")
        assert effects.reserve(f"k{number}", CONTENT) == Reserved(key=f"k{number}", attempt=1)
        assert effects.complete(f"k{number}", number) == number
        assert effects.reserve("k0", CONTENT) == Completed(key="k0", result=0), "whatever the time is there"
    table = effects_table(three.named(C))
    notes = list(commit_notes(table.path, table.version()))
    times = [note.in_commit_timestamp or 0 for note in reversed(notes)]
    assert times == sorted(set(times))
    assert len({note.user_metadata["epoch"] for note in notes}) == 6, "the lead changed each time"


def test_an_owner_whose_domain_does_not_lead_any_more_cannot_complete(three):
    first = in_domain(three, A, "p")
    first.reserve_all({"k": CONTENT, "other": CONTENT})
    second = in_domain(three, B, "q")
    assert second.reserve("k", CONTENT) == Reserved(key="k", attempt=2)
    with pytest.raises(Fenced):
        first.complete("k", 1)
    with pytest.raises(Fenced):
        first.complete("other", 1)
    assert second.complete("k", 2) == 2
    # Leading again makes nobody owner again of what was reserved before.
    first.reserve("third", CONTENT)
    with pytest.raises(EffectTakenOver, match="taken it over"):
        first.complete("k", 1)
    with pytest.raises(EffectTakenOver, match="led under epoch"):
        first.complete("other", 1)
    assert first.reserve_all({"k": CONTENT, "other": CONTENT}) == {
        "k": Completed(key="k", result=2),
        "other": Reserved(key="other", attempt=2),
    }


def test_a_completion_that_was_not_acknowledged_is_one_once_a_majority_is_back(three):
    away: dict[Path, Path] = {}

    def cut_off() -> dt.datetime:
        """Asked for while a commit is decided on: then the others go away."""
        for root in (root_of(three, B), root_of(three, C)) if armed else ():
            away[root] = root.rename(root.with_name(f"away-{root.name}"))
        return NOON

    armed = False
    first = in_domain(three, A, "p", clock=cut_off)
    first.reserve("k", CONTENT)
    armed = True
    with pytest.raises(QuorumUnavailable):
        first.complete("k", 1)
    armed = False
    for root, folder in away.items():
        folder.rename(root)
    assert first.complete("k", 2) == 1
    assert in_domain(three, B, "q").reserve("k", CONTENT) == Completed(key="k", result=1)


@pytest.mark.parametrize(
    ("failpoint", "then"),
    [
        (Failpoint.TABLE_BEFORE_COMMIT, Reserved(key="k", attempt=2)),
        (Failpoint.TABLE_AFTER_COMMIT, Completed(key="k", result="done")),
        (Failpoint.TABLE_AFTER_SYNC, Completed(key="k", result="done")),
    ],
)
def test_what_a_killed_process_left_is_taken_over_or_known_without_waiting(tmp_path, failpoint, then):
    program = f"""
import os
from pathlib import Path
from etl_assets_tests.effects.test_store import CONTENT, effects_table
from etl_assets.effects.store import EffectStore
from etl_assets.effects.table import EffectsTable
from etl_assets.placement.domains import FailureDomain

table = effects_table(FailureDomain(name="local", root=Path({str(tmp_path / "data")!r})))
store = EffectStore(EffectsTable(table), sink="sink", domain="local")
store.reserve("k", CONTENT)
os.environ["ETL_ASSETS_FAILPOINT"] = "{failpoint.value}@effects"
store.complete("k", "done")
"""
    died = subprocess.run([sys.executable, "-c", program], check=False)
    assert died.returncode == -9
    domain = local_domain(tmp_path / "data")
    after = EffectStore(EffectsTable(effects_table(domain)), sink="sink", domain="local")
    assert after.reserve("k", CONTENT, wait_seconds=0) == then
    assert after.reserve("k", CONTENT).key == "k"
