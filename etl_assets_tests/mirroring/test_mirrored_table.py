"""One table in several domains: leading, committing, reading, moving, losing a domain and taking it back."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

import pytest

from etl_assets.error_policy import Decision, decide
from etl_assets.errors import (
    Fenced,
    MembershipRefused,
    QuorumUnavailable,
    ReplicaCorrupt,
    StaleGeneration,
    Unanswered,
)
from etl_assets.mirroring.protocol.couriers import ThreadCouriers
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.protocol.record_codec import encode
from etl_assets.mirroring.stores.local_store import LocalStore
from etl_assets.testing.memory_store import MemoryStore, StoreFault
from etl_assets_tests.mirroring.platform import Impatient, Platform


class Outages:
    """Stores that do not answer."""

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


@pytest.fixture
def platform(outages) -> Platform:
    """Three voters with data."""
    made = Platform({domain: MemoryStore(domain, outages) for domain in "abc"})
    made.bootstrap()
    return made


@pytest.fixture
def with_witness(outages) -> Platform:
    """Two voters with data and a witness."""
    made = Platform({domain: MemoryStore(domain, outages) for domain in "abw"}, {"w": Role.WITNESS})
    made.bootstrap()
    return made


def log_of(platform: Platform, domain: str, folder: int = 1) -> dict[str, bytes]:
    prefix = f"tables/events/g{folder:06d}/_delta_log/"
    store = platform.stores[domain]
    assert isinstance(store, MemoryStore)
    files = store.files
    return {key.removeprefix(prefix): files[key] for key in files if key.startswith(prefix)}


def test_a_commit_is_the_same_bytes_in_every_domain(platform):
    leader = platform.process("a")
    leader.commit()
    leader.commit()
    logs = [log_of(platform, domain) for domain in "abc"]
    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0]) == 2
    data = [{k: v for k, v in platform.stores[d].files.items() if k.endswith(".parquet")} for d in "abc"]
    assert data[0] == data[1] == data[2]


def test_nothing_staged_is_left_behind(platform):
    platform.process("a").commit()
    assert [key for store in platform.stores.values() for key in store.files if "/staged/" in key] == []


def test_a_second_process_of_the_domain_joins_without_a_claim(platform):
    first = platform.process("a").commit()
    second = platform.process("a").lead()
    assert second == first


def test_a_process_that_joins_pushes_what_a_dead_one_left(platform):
    dead = platform.process("a")
    dead.spark_commit(dead.lead())
    assert platform.process("a").lead().version == 0
    assert platform.process("b").reading.bind().version == 0


def test_a_leader_that_another_one_followed_is_fenced(platform):
    old = platform.process("a")
    lead = old.lead()
    entry = old.spark_commit(lead)
    platform.process("b").commit()
    with pytest.raises(Fenced, match="a does not lead the table events") as fenced:
        old.mirror.acknowledge(lead, entry)
    assert str(fenced.value.by).endswith("/b")


def test_a_tail_nobody_acknowledged_is_left_in_an_abandoned_folder(platform):
    old = platform.process("a")
    lead = old.commit()
    tail = old.spark_commit(lead)
    new = platform.process("b")
    new.commit()
    new.commit()
    record = old.mirror.home.register.read().record
    assert record.published.folder > 1
    assert log_of(platform, "a", record.published.folder) == log_of(platform, "b")
    assert log_of(platform, "a", 1)["00000000000000000001.json"] == tail


def test_a_new_leader_has_everything_acknowledged_though_the_old_one_is_gone(platform, outages):
    platform.process("a").commit()
    outages.down.add("a")
    lead = platform.process("b").lead()
    assert lead.version == 0
    assert platform.process("b").commit(lead).version == 1


def test_a_domain_that_was_away_catches_up_with_the_next_commit(platform, outages):
    leader = platform.process("a")
    outages.down.add("c")
    for _ in range(3):
        leader.commit()
    outages.down.clear()
    leader.commit()
    assert log_of(platform, "c") == log_of(platform, "a")


def test_a_minority_neither_acknowledges_nor_reads_anew_and_says_whom_it_misses(platform, outages):
    leader = platform.process("a")
    lead = leader.commit()
    outages.down |= {"b", "c"}
    entry = leader.spark_commit(lead)
    with pytest.raises(QuorumUnavailable, match=r"b did not answer.*c did not answer") as missing:
        leader.mirror.acknowledge(lead, entry)
    assert missing.value.fields["missing"] == {
        domain: f"{domain} did not answer (get register/events.json)" for domain in "bc"
    }
    with pytest.raises(QuorumUnavailable):
        leader.reading.acknowledged()
    outages.down.clear()
    assert leader.lead().version == 1


def test_without_its_own_store_a_domain_cannot_lead(platform, outages):
    outages.down.add("a")
    with pytest.raises(QuorumUnavailable, match="its own domain does not answer"):
        platform.process("a").lead()


def test_a_reader_is_bound_to_its_own_domain(platform):
    platform.process("a").commit()
    binding = platform.process("c").reading.bind()
    assert (binding.domain, binding.version, binding.folder) == ("c", 0, "tables/events/g000001")


def test_a_reader_goes_elsewhere_while_its_domain_is_away(platform, outages):
    platform.process("a").commit()
    outages.down.add("c")
    assert platform.process("c").reading.bind().domain == "a"


def test_a_reader_follows_new_versions_and_is_told_when_the_leader_moved(platform):
    leader, reader = platform.process("a"), platform.process("c")
    leader.commit()
    binding = reader.reading.bind()
    leader.commit()
    binding = reader.reading.rebind(binding)
    assert binding.version == 1
    platform.process("b").commit()
    with pytest.raises(StaleGeneration) as stale:
        reader.reading.rebind(binding)
    assert (stale.value.held, stale.value.current) == (binding.generation, binding.generation + 1)
    assert reader.reading.bind().version == 2


def test_a_reader_finishes_a_write_that_its_leader_died_on(platform, outages):
    leader = platform.process("a")
    lead = leader.lead()
    leader.spark_commit(lead)
    outages.down |= {"b", "c"}
    with pytest.raises(QuorumUnavailable):
        leader.mirror.push()
    outages.down = {"c"}
    assert platform.process("b").reading.bind().version == 0


def test_a_change_of_voters_under_way_hides_no_version_that_a_lost_voter_acknowledged(platform, outages):
    leader = platform.process("a")
    lead = leader.lead()
    outages.down.add("c")
    leader.commit(lead)
    platform.stores["b"].files.clear()
    with pytest.raises(QuorumUnavailable):
        leader.membership.add("b")  # reached its own domain only: there B votes no more
    outages.down.clear()
    assert platform.process("c").reading.bind().version == 0


def test_a_domain_that_slept_through_changes_of_the_voters_finds_those_of_today(platform, outages):
    first = platform.process("a")
    first.commit()
    platform.stores["b"].files.clear()
    first.membership.add("b")
    outages.down.add("c")
    with pytest.raises(QuorumUnavailable):
        first.membership.promote("b")
    second = platform.process("b")
    second.commit()
    platform.stores["a"].files.clear()
    with pytest.raises(QuorumUnavailable):
        second.membership.add("a")
    outages.down.clear()
    # C knows of A, which has another memory now, and of B as a learner.
    assert platform.process("c").lead().version == 1


def test_an_emptied_voter_does_not_vote_from_a_blank_memory(platform, outages):
    platform.process("a").commit()
    platform.stores["b"].files.clear()
    with pytest.raises(ReplicaCorrupt, match="b has no register"):
        platform.process("b").lead()
    outages.down.add("a")
    with pytest.raises(QuorumUnavailable, match="b: has no register"):
        platform.process("c").lead()


def test_an_emptied_voter_rejoins_as_a_learner_and_votes_again_once_it_has_everything(platform, outages):
    leader = platform.process("a")
    leader.commit()
    platform.stores["b"].files.clear()
    assert leader.membership.forgotten() == ("b",)
    assert leader.membership.add("b").replica("b").role is Role.LEARNER
    assert leader.membership.promote("b").voters == ("a", "b", "c")
    leader.commit()
    folder = leader.mirror.table.replica("b").register.read().record.published.folder
    assert folder > 1
    assert log_of(platform, "b", folder) == log_of(platform, "a")
    outages.down.add("a")
    assert platform.process("b").lead().version == 1


def test_a_blank_memory_does_not_count_in_the_change_that_lets_it_rejoin(outages):
    stores = {domain: MemoryStore(domain, outages) for domain in "abcd"}
    platform = Platform(stores)
    platform.bootstrap()
    leader = platform.process("a")
    leader.commit()
    stores["b"].files.clear()
    outages.down.add("d")
    with pytest.raises(QuorumUnavailable):
        leader.membership.add("b")


def test_adding_a_domain_whose_memory_is_intact_changes_nothing(platform):
    leader = platform.process("a")
    before = leader.lead()
    leader.membership.add("b")
    assert leader.leadership.current() == before


def test_a_domain_that_another_process_let_rejoin_meanwhile_keeps_its_memory(platform, monkeypatch):
    platform.process("a").commit()
    platform.stores["b"].files.clear()
    slow, quick = platform.process("a").membership, platform.process("a").membership
    read = slow._read

    def read_late(domain, locator):
        quick.add(domain)
        quick.promote(domain)
        return read(domain, locator)

    monkeypatch.setattr(slow, "_read", read_late)
    locator = slow.add("b")
    held = platform.process("a").mirror.table.replica("b").register.read()
    assert held.record.accepted is not None, "it had voted, and was made to forget it"
    assert locator.replica("b").incarnation == held.record.incarnation
    assert locator.replica("b").role is Role.VOTER


def test_a_learner_that_has_not_caught_up_is_not_promoted(platform, outages):
    platform.stores["d"] = MemoryStore("d", outages)
    leader = platform.process("a")
    leader.commit()
    leader.membership.add("d")
    outages.down.add("d")
    with pytest.raises(MembershipRefused, match="d "):
        leader.membership.promote("d")
    outages.down.clear()
    assert leader.membership.promote("d").voters == ("a", "b", "c", "d")


def test_a_removed_domain_counts_no_more(platform, outages):
    leader = platform.process("a")
    leader.commit()
    assert leader.membership.remove("c").voters == ("a", "b")
    outages.down.add("b")
    with pytest.raises(QuorumUnavailable):
        leader.commit(leader.leadership.current())


def test_the_leader_does_not_remove_itself(platform):
    with pytest.raises(MembershipRefused, match="a leads it"):
        platform.process("a").membership.remove("a")


def test_a_witness_holds_the_log_and_no_rows(with_witness):
    with_witness.process("a").commit()
    assert log_of(with_witness, "w") == log_of(with_witness, "a")
    assert not any(key.endswith(".parquet") for key in with_witness.stores["w"].files)
    with pytest.raises(MembershipRefused, match="w cannot lead"):
        with_witness.process("w").lead()


def test_a_fast_witness_does_not_stand_in_for_a_second_copy(with_witness, outages):
    leader = with_witness.process("a")
    lead = leader.commit()
    outages.down.add("b")
    entry = leader.spark_commit(lead)
    with pytest.raises(QuorumUnavailable, match="b did not answer"):
        leader.mirror.acknowledge(lead, entry)
    assert len(log_of(with_witness, "w")) == 1


def test_going_on_with_one_copy_is_a_change_that_shows_and_is_taken_back(with_witness, outages):
    leader = with_witness.process("a")
    before = leader.commit()
    outages.down.add("b")
    locator = leader.membership.set_one_copy(True)
    assert locator.one_copy
    assert locator.generation > before.generation
    leader.commit()
    with pytest.raises(QuorumUnavailable):
        leader.membership.set_one_copy(False)
    outages.down.clear()
    leader.lead()
    assert not leader.membership.set_one_copy(False).one_copy


def test_a_new_leader_finds_the_data_with_a_voter_whose_promise_it_did_not_need(with_witness, outages):
    leader = with_witness.process("a")
    leader.commit()
    outages.down.add("b")
    leader.membership.set_one_copy(True)
    leader.commit()
    outages.down.clear()
    with_witness.couriers = Impatient(slow="a")
    assert with_witness.process("b").lead().version == 1
    assert log_of(with_witness, "b") == log_of(with_witness, "a")
    assert with_witness.process("b").reading.bind().domain == "b"


def test_a_new_leader_whose_log_is_damaged_mends_it_from_a_voter_whose_promise_it_did_not_need(with_witness):
    with_witness.process("a").commit()
    with_witness.couriers = Impatient(slow="a")
    store = with_witness.stores["b"]
    assert isinstance(store, MemoryStore)
    for key in [key for key in store.files if key.startswith("tables/")]:
        store.delete(key)
    assert with_witness.process("b").lead().version == 0


def test_a_new_leader_finds_the_data_with_a_learner(outages):
    platform = Platform(
        {domain: MemoryStore(domain, outages) for domain in "abwl"}, {"w": Role.WITNESS, "l": Role.LEARNER}
    )
    platform.bootstrap()
    leader = platform.process("a")
    leader.commit()
    outages.down.add("b")
    leader.membership.set_one_copy(True)
    leader.commit()
    leader.mirror.follow()
    outages.down = {"a"}
    assert platform.process("b").lead().version == 1


def test_a_leader_that_cannot_have_the_data_says_so_and_leads_once_it_can(with_witness, outages):
    leader = with_witness.process("a")
    leader.commit()
    outages.down.add("b")
    leader.membership.set_one_copy(True)
    leader.commit()
    outages.down = {"a"}
    with pytest.raises(
        QuorumUnavailable, match="b cannot lead the table events: no replica that answers has"
    ) as gone:
        with_witness.process("b").lead()
    assert "bring back a domain that holds it" in gone.value.fix
    outages.down.clear()
    assert with_witness.process("b").lead().version == 1


def test_the_last_other_copy_is_not_removed_by_accident(with_witness):
    leader = with_witness.process("a")
    with pytest.raises(MembershipRefused, match="one voter with data would be left"):
        leader.membership.remove("b")


def test_a_log_edited_by_hand_is_rebuilt_beside_and_left_as_it_is(platform):
    leader = platform.process("a")
    leader.commit()
    key = "tables/events/g000001/_delta_log/00000000000000000001.json"
    platform.stores["b"].files[key] = b"{}"
    leader.commit()
    folder = leader.mirror.table.replica("b").register.read().record.published.folder
    assert log_of(platform, "b", folder) == log_of(platform, "a")
    assert platform.stores["b"].files[key] == b"{}"


def test_a_folder_that_somebody_began_to_rebuild_with_another_head_is_passed_over(platform):
    leader = platform.process("a")
    leader.commit()
    for folder in (1, 2):  # an unacknowledged tail, and a claimant that adopted it and was fenced
        platform.stores["b"].files[f"tables/events/g{folder:06d}/_delta_log/00000000000000000001.json"] = (
            b"{}"
        )
    leader.commit()
    folder = leader.mirror.table.replica("b").register.read().record.published.folder
    assert folder == 3
    assert log_of(platform, "b", folder) == log_of(platform, "a")


def test_a_commit_whose_data_file_is_cut_short_is_not_voted_for(platform):
    leader = platform.process("a")
    lead = leader.lead()
    entry = leader.spark_commit(lead)
    data = next(key for key in platform.stores["a"].files if key.endswith(".parquet"))
    platform.stores["a"].files[data] = b"r"
    with pytest.raises(ReplicaCorrupt, match="not there in full"):
        leader.mirror.acknowledge(lead, entry)
    anew = platform.process("a").leadership.lead(rebuild=True)
    assert (anew.version, anew.folder > 1) == (-1, True)


@pytest.mark.parametrize(
    ("ending", "left"),
    [
        (".parquet", lambda content: content[:1]),
        (".json", lambda content: b""),
        (".json", lambda content: bytes(len(content))),
        (".json", lambda content: content[: len(content) // 2]),
    ],
    ids=["data cut", "entry empty", "entry zeros", "entry cut"],
)
def test_a_tail_that_a_power_cut_left_in_part_stops_nobody_and_is_not_mirrored(platform, ending, left):
    leader = platform.process("a")
    leader.commit()
    leader.spark_commit(leader.lead(), b"rows, and more")
    files = platform.stores["a"].files
    name = [key for key in files if key.endswith(ending)][-1]
    files[name] = left(files[name])
    lead = platform.process("a").commit()
    assert (lead.version, lead.folder > 1) == (1, True)
    assert log_of(platform, "a", lead.folder) == log_of(platform, "b")


EDITS = {
    "edited": lambda entry: entry.replace(b'"', b"'", 1),
    "cut": lambda entry: entry.splitlines()[0],
    "gone": lambda entry: None,
}


def edited(platform: Platform, domain: str, edit: str, version: int = 1) -> None:
    store = platform.stores[domain]
    assert isinstance(store, MemoryStore)
    key = f"tables/events/g000001/_delta_log/{version:020d}.json"
    if (entry := EDITS[edit](store.files.pop(key))) is not None:
        store.files[key] = entry


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("home", ["a", "b"])
def test_nobody_leads_from_a_log_that_is_not_what_was_published(platform, home, edit):
    for _ in range(3):
        platform.process("a").commit()
    edited(platform, home, edit)
    lead = platform.process(home).lead()
    assert (lead.version, lead.folder > 1) == (2, True)
    assert log_of(platform, home, lead.folder) == log_of(platform, "c")
    platform.process(home).commit()
    assert platform.process("c").reading.acknowledged().version == 3


def test_what_was_seen_whole_is_not_read_again_and_what_came_since_is(platform):
    leader = platform.process("a")
    leader.commit()
    leader.lead()
    edited(platform, "a", "cut", version=0)
    assert leader.lead().folder == 1
    leader.commit()
    edited(platform, "a", "cut", version=1)
    assert leader.lead().folder > 1


@pytest.mark.parametrize("edit", EDITS)
def test_nobody_reads_a_log_that_is_not_what_was_published(platform, edit, caplog):
    for _ in range(3):
        platform.process("a").commit()
    assert platform.process("b").reading.bind().domain == "b"
    edited(platform, "b", edit)
    reading = platform.process("b").reading
    assert [reading.bind().domain, reading.bind().domain] == ["a", "a"]
    assert [record.message for record in caplog.records] == [
        "the table events is not read from b: its log is not the one that was published; rebuild it with"
        " `etl-assets tables repair`"
    ]
    edited(platform, "a", edit)
    edited(platform, "c", edit)
    with pytest.raises(QuorumUnavailable, match="b: its log is not the one that was published"):
        platform.process("b").reading.bind()


def test_what_is_wrong_with_a_replica_is_told(platform):
    leader = platform.process("a")
    leader.commit()
    leader.commit()
    replica = leader.mirror.table.replica("b")
    published = replica.register.read().record.published
    assert list(replica.broken(published, has_data=True)) == []
    files = platform.stores["b"].files
    data = next(key for key in files if key.endswith(".parquet"))
    files[data] = b"r"
    entry = "tables/events/g000001/_delta_log/00000000000000000001.json"
    files[entry] += b"\n"
    assert list(replica.broken(published, has_data=True)) == [
        "the log in tables/events/g000001 is not the one that was published",
        f"{data.rpartition('/')[2]} is missing in tables/events/g000001, or not of its size",
    ]
    del files[entry]
    assert list(replica.broken(published, has_data=True)) == ["version 1 is missing in tables/events/g000001"]


def test_entries_staged_for_votes_that_came_to_nothing_are_swept(platform):
    leader = platform.process("a")
    leader.commit()
    staged = platform.stores["b"].files
    staged["tables/events/staged/00000000000000000000.abc.json"] = b"{}"
    staged["tables/events/staged/00000000000000000007.abc.json"] = b"{}"
    leader.mirror.follow()
    assert [key for key in staged if "/staged/" in key] == [
        "tables/events/staged/00000000000000000007.abc.json"
    ]


def test_a_learner_follows_without_counting(outages):
    platform = Platform({domain: MemoryStore(domain, outages) for domain in "abcl"}, {"l": Role.LEARNER})
    platform.bootstrap()
    leader = platform.process("a")
    lead = leader.commit()
    assert log_of(platform, "l") == {}
    leader.mirror.follow()
    assert log_of(platform, "l") == log_of(platform, "a")
    outages.down |= {"b", "c"}
    with pytest.raises(QuorumUnavailable):
        leader.mirror.acknowledge(lead, leader.spark_commit(lead))


def test_a_lead_names_the_folder_to_write_to(platform):
    assert platform.process("a").lead().content_generation == "g000001"


@pytest.mark.parametrize(
    ("error", "decision"),
    [
        (QuorumUnavailable, Decision.RETRY),
        (Fenced, Decision.RETRY),
        (StaleGeneration, Decision.RETRY),
        (Unanswered, Decision.RETRY),
        (ReplicaCorrupt, Decision.STOP),
        (MembershipRefused, Decision.STOP),
    ],
)
def test_an_error_of_mirroring_is_repeated_or_final(error, decision):
    assert decide(error("it went wrong", fix="mend it")) is decision


def test_a_register_that_cannot_be_read_is_named(platform):
    platform.stores["a"].files["register/events.json"] = b'{"format": 1}'
    with pytest.raises(ReplicaCorrupt, match=r"a: register/events\.json"):
        platform.process("a").lead()


def test_the_register_of_another_table_is_not_taken_for_this_ones(platform):
    record = platform.process("a").mirror.held().record
    platform.stores["a"].files["register/events.json"] = encode(replace(record, table="orders"))
    with pytest.raises(ReplicaCorrupt, match="that of the table orders"):
        platform.process("a").lead()


def test_a_bootstrap_is_finished_by_running_it_again(platform, outages):
    fresh = Platform({domain: MemoryStore(domain, outages) for domain in "abc"})
    outages.down.add("c")
    with pytest.raises(Unanswered):
        fresh.bootstrap()
    outages.down.clear()
    fresh.bootstrap()
    fresh.bootstrap()
    assert fresh.process("b").commit().version == 0


def test_two_platforms_do_not_share_a_root(outages):
    store = MemoryStore("a", outages)
    Platform({"a": store}).bootstrap()
    with pytest.raises(MembershipRefused, match="other replicas"):
        Platform({"a": store, "b": MemoryStore("b"), "c": MemoryStore("c")}).bootstrap()


def test_a_learner_that_joined_later_serves_the_readers_of_its_domain(platform, outages):
    platform.stores["d"] = MemoryStore("d", outages)
    leader, reader = platform.process("a"), platform.process("d")
    leader.commit()
    leader.membership.add("d")
    assert reader.reading.bind().domain == "a"
    leader.mirror.follow()
    assert reader.reading.bind().domain == "d"


def test_a_bootstrap_never_makes_a_lost_register_anew(platform):
    platform.process("a").commit()
    platform.stores["b"].files.clear()
    with pytest.raises(MembershipRefused, match="the register is gone in b"):
        platform.bootstrap()


def test_a_table_that_exists_is_mirrored_from_its_first_version_on():
    stores = {domain: MemoryStore(domain) for domain in "abc"}
    platform = Platform(stores)
    platform.bootstrap()
    writer = platform.process("a")
    lead = writer.lead()
    for version in range(4):
        writer.spark_commit(lead, version=version)
    assert platform.process("a").lead().version == 3
    assert log_of(platform, "c") == log_of(platform, "a")


def test_a_single_domain_is_a_table_like_any_other():
    platform = Platform({"a": MemoryStore("a")})
    platform.bootstrap()
    assert platform.process("a").commit().version == 0
    assert platform.process("a").reading.bind().version == 0


def test_folders_on_disk_hold_the_same_and_survive_the_loss_of_one(tmp_path):
    for domain in "abc":
        (tmp_path / domain).mkdir()
    couriers = ThreadCouriers()
    platform = Platform({domain: LocalStore(tmp_path / domain) for domain in "abc"}, couriers=couriers)
    platform.bootstrap()
    leader = platform.process("a")
    for _ in range(3):
        leader.commit()
    shutil.rmtree(tmp_path / "a")
    began = time.monotonic()
    assert platform.process("b").commit().version == 3
    assert time.monotonic() - began < 5
    couriers.close()
    names = sorted(path.name for path in (tmp_path / "b/tables/events/g000001/_delta_log").glob("*.json"))
    assert names == [f"{version:020d}.json" for version in range(4)]


class Listing(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.operations = self.listed = 0

    def _do(self, operation, key, effect):
        self.listed += operation == "list"
        self.operations += 1
        return super()._do(operation, key, effect)


@pytest.mark.parametrize("versions", [10, 200])
def test_a_commit_asks_the_same_few_things_of_a_store_however_long_the_log(versions):
    stores = {domain: Listing(domain) for domain in "abc"}
    platform = Platform(stores)
    platform.bootstrap()
    leader = platform.process("a")
    lead = leader.lead()
    listed = {domain: store.listed for domain, store in stores.items()}
    for _ in range(versions):
        lead = leader.commit(lead)
    before = {domain: store.operations for domain, store in stores.items()}
    leader.commit(lead)
    asked = {domain: store.operations - before[domain] for domain, store in stores.items()}
    assert {domain: store.listed for domain, store in stores.items()} == listed, "a commit lists a folder"
    assert asked["a"] <= 35
    assert asked["b"] <= 16
    assert asked["c"] <= 16
