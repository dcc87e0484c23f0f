"""The data path on tables that three failure domains hold: a domain is lost, its stages move, it comes
back.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from etl_assets.delta.log.checkpoint import checkpoint_in_place
from etl_assets.delta.log.entries import entry_path, last_checkpoint_path, read_entry
from etl_assets.delta.snapshot import Snapshot
from etl_assets.effects.store import EffectStore
from etl_assets.effects.table import EffectsTable
from etl_assets.errors import CommitConflict, Fenced, QuorumUnavailable
from etl_assets.mirroring.protocol import checkpoints
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.protocol.mirror import Mirror
from etl_assets.placement.domain_registry import DomainRegistry
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.site import Site
from etl_assets.steps.compact import Compact
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline, event
from etl_assets_tests.reference.tables import ALL_TABLES, CATALOG, local_domain

pytestmark = pytest.mark.spark

NAMES = ("local/a", "local/b", "local/c")
STEPS = ["raw_events", "normalized_orders", "warehouse_rows"]


@pytest.fixture
def domains(pipeline: Pipeline) -> tuple[Pipeline, ...]:
    """The same platform, seen from each of three domains."""
    sites = tuple(Site(name=name, root=str(pipeline.root / name[-1]), role=Role.VOTER) for name in NAMES)
    memory = DomainRegistry(pipeline.root / "domains.json")
    for site in sites:
        memory.take(site.name, site.root)
    return tuple(
        dataclasses.replace(
            pipeline,
            works_in=FailureDomain(catalog=CATALOG, name=site.name, root=Path(site.root), sites=sites),
        )
        for site in sites
    )


def logs(pipeline: Pipeline, table: str) -> dict[str, bytes]:
    """The log entries of a domain's own replica, by name."""
    (folder,) = sorted((pipeline.domain.root / "tables" / table).glob("g*"))[-1:]
    return {file.name: file.read_bytes() for file in (folder / "_delta_log").glob("*.json")}


def follow(pipeline: Pipeline) -> None:
    """Bring every replica of every table up to the head, from the domain that leads."""
    for contract in ALL_TABLES:
        mirrored = pipeline.context.table(contract.name).replication
        assert mirrored is not None
        if mirrored.exists():
            mirrored.lead()
            mirrored.follow()


def ids(pipeline: Pipeline, table: str) -> list[str]:
    return sorted(row["event_id"] for row in pipeline.rows(table))


def test_every_domain_holds_the_same_bytes_and_gives_the_same_rows(domains):
    first, *others = domains
    refused = event(9, payload={"customer_id": "c", "amount": "-1"})
    first.land([*(event(number) for number in range(5)), "bad", event(1), refused])
    first.run()
    follow(first)
    for contract in ALL_TABLES:
        if first.context.table(contract.name).version() < 0:
            continue  # A table of the platform's own, of which there has been no need.
        for other in others:
            assert logs(other, contract.name) == logs(first, contract.name)
            assert other.rows(contract.name) == first.rows(contract.name)
            assert str(other.context.table(contract.name).path).startswith(str(other.domain.root))


def test_what_a_platform_had_while_it_had_one_domain_is_in_all_of_several(domains):
    """Another domain works first; the log of one table has lost its beginning to Delta's clean-up."""
    first, second, third = domains
    single = dataclasses.replace(first, works_in=local_domain(first.domain.root))
    single.land([*(event(number) for number in range(5)), "bad", event(1)])
    single.run()
    single.land([event(5)], name="b.jsonl")
    single.run(only=STEPS)
    before = {contract.name: single.rows(contract.name) for contract in ALL_TABLES}
    cleaned = single.context.table("normalized_orders")
    checkpoint_in_place(cleaned.path, cleaned.version())
    for version in range(cleaned.version()):
        entry_path(cleaned.path, version).unlink()

    assert ids(third, "raw_events") == [f"event-{number}" for number in range(6)]
    second.land([event(number) for number in range(4, 8)], name="c.jsonl")
    second.land([event(1, day=NEXT_DAY, event_id="next")], day=NEXT_DAY)
    reports = second.run([DAY, NEXT_DAY])
    assert reports["raw_events"].total()["read"] == 5, "files that were read before are not read again"
    follow(second)
    expected = sorted([*(f"event-{number}" for number in range(8)), "next"])
    for table in STEPS:
        assert ids(second, table) == expected
    for contract in ALL_TABLES:
        rows = {pipeline.works_in.name: pipeline.rows(contract.name) for pipeline in domains}
        assert rows[NAMES[0]] == rows[NAMES[1]] == rows[NAMES[2]]
        if contract.name != "order_status_view":
            assert [row for row in before[contract.name] if row not in rows[NAMES[0]]] == []
        mirrored = second.context.table(contract.name).replication
        assert not any(mirrored.broken().values())
    offsets = [row["offset"] for row in second.rows("raw_events", order_by="offset")]
    assert offsets == list(range(len(expected)))


def test_when_a_domain_is_lost_another_goes_on_from_the_cursor_and_brings_it_back_up_to_the_same_bytes(
    domains,
):
    first, second, third = domains
    first.land([event(number) for number in range(5)])
    first.run(only=STEPS)
    away = first.domain.root.rename(first.domain.root.with_name("away"))
    second.land([event(number) for number in range(3, 9)], name="b.jsonl")
    second.land([event(1, day=NEXT_DAY, event_id="next")], day=NEXT_DAY)
    reports = second.run([DAY, NEXT_DAY], only=STEPS)
    assert reports["raw_events"].total()["read"] == 7, (
        "files that were read before the loss are not read again"
    )
    expected = sorted([*(f"event-{number}" for number in range(9)), "next"])
    for table in STEPS:
        assert ids(second, table) == expected
        assert ids(third, table) == expected
    offsets = [row["offset"] for row in second.rows("raw_events", order_by="offset")]
    assert offsets == list(range(10))
    table = second.context.table("raw_events")
    by = [read_entry(table.path, version).user_metadata.get("epoch") for version in (1, table.version())]
    assert by == ["1/local/a", "2/local/b"]

    away.rename(first.domain.root)
    follow(second)
    for table in STEPS:
        assert logs(first, table) == logs(second, table) == logs(third, table)
        assert ids(first, table) == expected


def test_a_sink_commit_that_is_retried_here_or_elsewhere_makes_no_second_row(domains, monkeypatch):
    first, second, _ = domains
    sink = ["warehouse_rows"]
    first.land([event(1)])
    first.run(only=STEPS)
    first.land([event(2)], name="b.jsonl")
    first.run(only=STEPS[:-1])
    acknowledge = Mirror.acknowledge

    def answer_lost(self, lead, entry):
        acknowledge(self, lead, entry)
        raise QuorumUnavailable("no answer", fix="ask again", table="warehouse_rows", missing={})

    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "acknowledge", answer_lost)
        with pytest.raises(QuorumUnavailable):
            first.run(only=sink)
    assert first.run(only=sink)["warehouse_rows"].commits == 0
    assert ids(first, "warehouse_rows") == ["event-1", "event-2"]

    first.land([event(3)], name="c.jsonl")
    first.run(only=STEPS[:-1])

    def killed(*_):
        raise QuorumUnavailable("no answer", fix="ask again", table="warehouse_rows", missing={})

    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "acknowledge", killed)
        with pytest.raises(QuorumUnavailable):
            first.run(only=sink)
    assert second.run(only=sink)["warehouse_rows"].commits == 1
    assert first.run(only=sink)["warehouse_rows"].commits == 0
    for each in domains:
        assert ids(each, "warehouse_rows") == ["event-1", "event-2", "event-3"]


def test_a_table_written_without_spark_is_an_ordinary_one_to_spark(domains):
    for pipeline in (domains[0], dataclasses.replace(domains[0], works_in=None)):
        table = pipeline.context.table("effects")
        store = EffectStore(EffectsTable(table), sink="invoices", domain=table.domain.name)
        store.reserve_all({"a": "f", "b": "f", "c": "f"})
        store.complete_all({"a": {"rows": 1}})
        store.reserve("d", "f")
        rows = pipeline.context.spark.read.format("delta").load(str(table.path)).collect()
        found = sorted((row["key"], row["state"], row["result"], row["batch_id"]) for row in rows)
        assert found == [
            ("a", "completed", '{"rows":1}', 2),
            ("b", "reserved", None, 1),
            ("c", "reserved", None, 1),
            ("d", "reserved", None, 3),
        ]
        was, now = Compact(context=pipeline.context, table="effects").run()
        assert (was.files, now.files, now.version) == (2, 1, 4)
        assert store.complete_all({"b": 2, "d": 4}) == {"b": 2, "d": 4}


def test_without_a_majority_nothing_is_acknowledged_and_nothing_is_lost_once_it_is_back(domains):
    first, second, third = domains
    first.land([event(1)])
    first.run(only=["raw_events"])
    roots = [each.domain.root for each in (second, third)]
    for root in roots:
        root.rename(root.with_name(f"gone-{root.name}"))
    first.land([event(2)], name="b.jsonl")
    with pytest.raises(QuorumUnavailable, match=r"local/b|local/c"):
        first.run(only=["raw_events"])
    for root in roots:
        root.with_name(f"gone-{root.name}").rename(root)
    first.run(only=["raw_events"])
    assert ids(third, "raw_events") == ["event-1", "event-2"]


def test_a_leader_that_slept_through_a_change_of_leader_cannot_commit(domains):
    first, second, _ = domains
    first.land([event(1)])
    first.run(only=["raw_events"])
    table = first.context.table("raw_events")
    asleep = table.replication
    assert asleep is not None
    lead = asleep.lead()
    second.land([event(2)], name="b.jsonl")
    second.run(only=["raw_events"])
    with pytest.raises(Fenced):
        asleep.acknowledge(lead, b"{}")
    first.land([event(3)], name="c.jsonl")
    for _ in range(2):
        try:
            first.run(only=["raw_events"], mode=ReadMode.INCREMENTAL)
            break
        except CommitConflict:
            continue
    assert ids(second, "raw_events") == ["event-1", "event-2", "event-3"]


def test_compaction_and_checkpoints_say_the_same_to_spark_and_to_delta_rs_in_every_domain(
    domains, spark, tmp_path, monkeypatch
):
    monkeypatch.setattr(checkpoints, "EVERY", 2)
    first, second, third = domains
    for number in range(3):
        first.land([event(10 * number + each) for each in range(3)], name=f"{number}.jsonl")
        first.run(only=STEPS)
    before = {name: sorted(map(str, first.rows(name))) for name in STEPS}
    for name in STEPS:
        was, now = Compact(context=first.context, table=name).run()
        assert (was.files, now.files) == (3, 1)
    follow(first)
    for name in STEPS:
        mirrored = first.context.table(name).replication
        assert mirrored is not None
        assert set(mirrored.checkpoint()) == set(NAMES)
        assert mirrored.broken() == {domain: [] for domain in NAMES}
        assert logs(first, name) == logs(second, name) == logs(third, name)
    for other in domains:
        for name in STEPS:
            table = other.context.table(name)
            version = table.version()
            assert sorted(map(str, other.rows(name))) == before[name]
            # What Spark reads by the checkpoint alone: nothing before it is left in this copy.
            short = tmp_path / "short" / other.domain.name / name
            shutil.copytree(table.path, short)
            named = json.loads(last_checkpoint_path(short).read_bytes())["version"]
            assert version - named < 2
            for entry in range(named):
                entry_path(short, entry).unlink()
            whole = spark.read.format("delta").option("versionAsOf", version).load(str(table.path))
            rows = spark.read.format("delta").load(str(short))
            assert rows.count() == whole.count() == len(before[name])
            assert rows.exceptAll(whole).count() == 0
            found, expected = _load(short, version), _without_checkpoint(table.path, tmp_path, version)
            assert sorted(found.files_by_day()) == sorted(expected.files_by_day())
            days = [f"{source}/{DAY}" for source in STEPS]
            assert [found.transaction_version(each) for each in ("files", *days)] == [
                expected.transaction_version(each) for each in ("files", *days)
            ]
    # Spark goes on from a checkpoint, in another domain: what was read is not read again.
    second.land([event(0), event(99)], name="later.jsonl")
    reports = second.run(only=STEPS)
    assert reports["warehouse_rows"].total()["read"] == 1
    assert len(ids(third, "warehouse_rows")) == 10
    follow(second)
    assert logs(first, "raw_events") == logs(second, "raw_events") == logs(third, "raw_events")
    _expect_to_go_on_with_shorter_logs(domains)


def _expect_to_go_on_with_shorter_logs(domains: Sequence[Pipeline]) -> None:
    """Logs that begin later, and a replica that was built from there: Spark reads them, and goes on."""
    _, second, third = domains
    for name in STEPS:
        mirrored = second.context.table(name).replication
        assert mirrored is not None
        assert mirrored.shorten(2)[0] > 0
        mirrored.rebuild(third.domain.name)
        assert mirrored.broken() == {domain: [] for domain in NAMES}
    assert len(ids(third, "warehouse_rows")) == 10
    third.land([event(0), event(100)], name="latest.jsonl")
    third.run(only=STEPS)
    follow(third)
    for other in domains:
        assert ids(other, "warehouse_rows") == ids(other, "raw_events")
        assert len(set(ids(other, "raw_events"))) == len(ids(other, "raw_events")) == 11


def _without_checkpoint(path: Path, tmp_path: Path, version: int) -> Snapshot:
    plain = tmp_path / "plain" / path.relative_to(tmp_path)
    shutil.copytree(path, plain, ignore=shutil.ignore_patterns("*.checkpoint.parquet", "_last_checkpoint"))
    return _load(plain, version)


def _load(path: Path, version: int) -> Snapshot:
    return Snapshot(DeltaTable(str(path), version=version))
