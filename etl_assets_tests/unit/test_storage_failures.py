"""No raw error of a file system reaches the caller of a commit, an effect or a replay: each says what is
wrong where, and what to do.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from etl_assets.contracts.tables import EFFECTS
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.replacement import Replacement, replace_contents
from etl_assets.delta.write.write_version import Place, write_version
from etl_assets.delta.write.writing import storage_named
from etl_assets.effects.store import EffectStore, Reserved
from etl_assets.effects.table import EffectsTable
from etl_assets.error_policy import Decision, advice, decide
from etl_assets.errors import FilesGone, ReplicaCorrupt, StorageFailed
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.settings import load_settings
from etl_assets.sources.replays import record_again, submit_replays
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.three_domains import A, B, C, three_domains

DAY = dt.date(2026, 3, 1)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def domain(home: Path) -> FailureDomain:
    return load_settings().placement().place(PlacementClass.SINK)


@pytest.fixture
def mirrored(home: Path) -> Placement:
    return three_domains(home)


def named(placement: Placement, name: str) -> FailureDomain:
    found = placement.named(name)
    assert found is not None
    return found


def an_effect(domain: FailureDomain, key: str = "k") -> None:
    """Reserved and completed by a process that knows nothing of others yet."""
    log = EffectsTable(platform_table(EFFECTS.name, domain), wait_seconds=1)
    store = EffectStore(log, sink="sink", domain=domain.name)
    assert isinstance(store.reserve(key, "content"), Reserved)
    store.complete(key, 1)


def a_replay(domain: FailureDomain) -> None:
    submit_replays(domain, [record_again(DAY, "a" * 64, 2, b"{}")], wait_seconds=1)


def an_undo(domain: FailureDomain) -> None:
    table = platform_table("warehouse_rows", domain)
    replace_contents([Replacement(table=table, base_version=table.version())], wait_seconds=1)


def a_table(domain: FailureDomain) -> None:
    ensure_table(platform_table("customers", domain), wait_seconds=1)


CALLS = {"effect": an_effect, "replay": a_replay, "undo": an_undo, "table": a_table}
TABLES = {"effect": "effects", "replay": "replays", "undo": "warehouse_rows", "table": "customers"}


@pytest.fixture(params=CALLS)
def call(request, domain) -> tuple[Callable[[FailureDomain], None], str]:
    if request.param == "undo":
        ensure_table(platform_table("warehouse_rows", domain))
    return CALLS[request.param], TABLES[request.param]


@pytest.mark.parametrize(
    ("number", "fix", "decision"),
    [
        (errno.ENOSPC, "free space", Decision.STOP),
        (errno.EROFS, "mount it writable", Decision.RETRY),
        (errno.EACCES, "let this user", Decision.RETRY),
        (errno.EIO, "see that its disk is mounted", Decision.RETRY),
    ],
    ids=["full", "read-only", "permission", "broken"],
)
def test_what_the_disk_of_a_lock_refuses_is_named_with_its_remedy(
    domain, call, monkeypatch, number, fix, decision
):
    act, table = call
    make = Path.mkdir

    def refused(path: Path, *arguments, **options) -> None:
        if path == domain.lock_path(table).parent:
            raise OSError(number, os.strerror(number), str(path))
        make(path, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", refused)
        with pytest.raises(StorageFailed, match=os.strerror(number)) as failed:
            act(domain)
    assert table in failed.value.message
    assert failed.value.fix.startswith(fix)
    assert decide(failed.value) is decision
    assert fix in advice(failed.value)
    act(domain)


@pytest.mark.parametrize("damage", ["gone", "cut"])
@pytest.mark.parametrize("what", ["effect", "replay"])
def test_a_home_file_that_is_gone_or_damaged_is_named_and_with_several_domains_another_one_helps(
    mirrored, damage, what
):
    act, table = CALLS[what], TABLES[what]
    act(named(mirrored, A))
    harm(named(mirrored, A).root / "tables" / table, damage)
    again = an_effect_of_a_new_process if what == "effect" else a_replay
    with pytest.raises(
        ReplicaCorrupt, match=f"a file of the table {table}, is gone or damaged in {A}"
    ) as lost:
        again(named(mirrored, A))
    assert f"`etl-assets tables relocate {table} --to`" in lost.value.fix
    again(named(mirrored, B))
    found = platform_table(table, named(mirrored, B)).replication
    assert found is not None
    found.rebuild(A)
    assert found.broken() == {name: [] for name in (A, B, C)}


def harm(table: Path, damage: str) -> None:
    files = list(table.rglob("*.parquet"))
    assert files
    for file in files:
        if damage == "gone":
            file.unlink()
        else:
            content = file.read_bytes()[:-7]
            file.unlink()
            file.write_bytes(content)


def an_effect_of_a_new_process(domain: FailureDomain) -> None:
    an_effect(domain, key="another")


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_with_one_domain_a_file_that_is_gone_or_damaged_is_named_too(domain, damage):
    an_effect(domain)
    harm(domain.root / "tables" / "effects", damage)
    with pytest.raises(FilesGone, match="a file of the table effects, is gone or damaged") as lost:
        an_effect_of_a_new_process(domain)
    assert "backup" in lost.value.fix
    assert decide(lost.value) is Decision.STOP


def test_a_damaged_file_of_another_domain_or_another_table_is_named_as_theirs(mirrored):
    table = platform_table("warehouse_rows", named(mirrored, A))
    root = named(mirrored, B).root
    file = root / "tables" / "customers" / "g000001" / "part-0.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    with (
        pytest.raises(ReplicaCorrupt, match=f"of the table customers, is gone or damaged in {B}") as lost,
        storage_named(table),
    ):
        raise OSError(errno.EBADMSG, "no whole Parquet file", str(file))
    assert "`etl-assets tables relocate customers --to`" in lost.value.fix
    with pytest.raises(StorageFailed, match=f"warehouse_rows in {B} failed: {root}"), storage_named(table):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(root))


def test_a_root_that_goes_away_in_the_middle_of_a_commit_is_no_other_program(domain):
    table = platform_table("warehouse_rows", domain)
    ensure_table(table)

    def gone(place: Place, writer: str) -> None:
        domain.root.rename(domain.root.with_name("away"))

    with pytest.raises(StorageFailed, match="No such file") as failed, storage_named(table):
        write_version(None, table, 1, gone)
    assert decide(failed.value) is Decision.RETRY


def test_what_is_no_file_systems_error_goes_through(domain):
    table: Table = platform_table("warehouse_rows", domain)
    others = (
        ConnectionResetError(errno.ECONNRESET, "reset"),
        TimeoutError(errno.ETIMEDOUT, "late"),
        OSError("without a number"),
        FileNotFoundError(errno.ENOENT, "not there", "/landing/a.jsonl"),
    )
    for error in others:
        with pytest.raises(type(error)) as same, storage_named(table):
            raise error
        assert same.value is error
