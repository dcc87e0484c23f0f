"""What a voter remembers: it only moves forward, and is read back exactly or not at all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.errors import ReplicaCorrupt
from etl_assets.mirroring.protocol.chain import GENESIS, extend
from etl_assets.mirroring.protocol.checkpoints import digest
from etl_assets.mirroring.protocol.epochs import BEFORE_ALL, Epoch
from etl_assets.mirroring.protocol.locator import Locator, ReplicaConfig, Role
from etl_assets.mirroring.protocol.record import WHOLE_LOG, Base, Published, Record, State
from etl_assets.mirroring.protocol.record_codec import decode, encode, sealed

epochs = st.builds(Epoch, st.integers(1, 5), st.sampled_from("abc"))
replicas = st.builds(
    ReplicaConfig, domain=st.text(), uri=st.text(), role=st.sampled_from(Role), incarnation=st.text()
)
locators = st.builds(
    Locator,
    generation=st.integers(1, 4),
    one_copy=st.booleans(),
    replicas=st.lists(replicas, max_size=3).map(tuple),
)
chains = st.binary(max_size=2).map(lambda entry: extend(GENESIS, entry))
digests = st.binary(max_size=2).map(digest)
bases = st.just(WHOLE_LOG) | st.builds(Base, first=st.integers(1, 4), before=chains, checkpoint=digests)
states = st.builds(
    State, epoch=epochs, version=st.integers(-1, 4), chain=chains, locator=locators, base=bases
)
published = st.builds(Published, version=st.integers(-1, 4), chain=chains, folder=st.integers(1, 4))
records = st.builds(
    Record,
    table=st.text(),
    incarnation=st.text(),
    promised=epochs,
    accepted=st.none() | states,
    published=published,
)


@given(records)
def test_a_record_is_read_back_as_it_was_written(record):
    assert decode(encode(record), domain="a", key="here") == record


@given(records, st.lists(st.one_of(epochs, states, published), max_size=8))
def test_a_record_only_moves_forward(record, requests):
    for request in requests:
        if isinstance(request, Epoch):
            after = record.promise(request)
        elif isinstance(request, State):
            after = record.accept(request)
        else:
            after = record.publish(request)
        if after is None:
            continue
        assert after.promised >= record.promised
        assert after.published.version >= record.published.version
        assert after.published.folder >= record.published.folder
        if record.accepted is not None and after.accepted != record.accepted:
            assert after.accepted is not None
            assert after.accepted.epoch >= record.promised
        record = after


@given(epochs, epochs)
def test_two_epochs_are_equal_only_if_number_and_owner_are(one, other):
    assert (one == other) == ((one.number, one.domain) == (other.number, other.domain))
    assert one == other or (one < other) != (other < one)


@given(records)
def test_a_lower_epoch_is_refused_and_nothing_changes(record):
    assert record.promise(BEFORE_ALL) is None
    assert record.accept(State(epoch=BEFORE_ALL, version=9, chain=GENESIS, locator=LOCATOR)) is None


LOCATOR = Locator(
    generation=1,
    one_copy=False,
    replicas=tuple(
        ReplicaConfig(domain=domain, uri=domain, role=role, incarnation=domain)
        for domain, role in (
            ("a", Role.VOTER),
            ("b", Role.VOTER),
            ("w", Role.WITNESS),
            ("l", Role.LEARNER),
        )
    ),
)


@pytest.mark.parametrize(
    ("votes", "one_copy", "enough"),
    [
        ("ab", False, True),
        ("aw", False, False),
        ("aw", True, True),
        ("abw", False, True),
        ("al", True, False),
        ("a", True, False),
    ],
)
def test_an_acknowledgement_needs_a_majority_and_the_data_in_two_domains(votes, one_copy, enough):
    assert replace(LOCATOR, one_copy=one_copy).has_quorum(votes) is enough


def document() -> dict:
    state = State(epoch=Epoch(1, "a"), version=0, chain=GENESIS, locator=LOCATOR)
    made = json.loads(encode(Record(table="t", incarnation="i", promised=Epoch(1, "a"), accepted=state)))
    del made["sha256"]
    return made


BASE = {"first": 1, "before": GENESIS, "checkpoint": GENESIS}


def without_checksum(document: dict) -> bytes:
    return json.dumps({**document, "format": 2 if "base" in document["accepted"] else 1}).encode()


@pytest.mark.parametrize("written", [sealed, without_checksum])
@pytest.mark.parametrize("base", [None, BASE])
def test_registers_with_and_without_checksum_are_read(written, base):
    made = document()
    made["accepted"] |= {} if base is None else {"base": base}
    accepted = decode(written(made), domain="a", key="here").accepted
    assert accepted is not None
    assert accepted.base == (WHOLE_LOG if base is None else Base(**base))


@pytest.mark.parametrize("written", [sealed, lambda document: json.dumps(document).encode()])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.update(format=4),
        lambda d: d.update(format="3"),
        lambda d: d["accepted"].update(base=BASE | {"first": 0}),
        lambda d: d["accepted"].update(base={"first": 1, "before": GENESIS}),
        lambda d: d.update(more=1),
        lambda d: d.pop("incarnation"),
        lambda d: d["promised"].update(number="1"),
        lambda d: d["accepted"].update(version=True),
        lambda d: d["accepted"].update(chain="ab"),
        lambda d: d["accepted"]["replicas"][0].update(role="king"),
        lambda d: d["published"].update(folder=1.5),
    ],
)
def test_a_register_with_anything_odd_in_it_is_corrupt(spoil, written):
    spoiled = document()
    if written is not sealed:
        spoiled["format"] = 1
    spoil(spoiled)
    with pytest.raises(ReplicaCorrupt, match="the register a: here cannot be read") as refused:
        decode(written(spoiled), domain="a", key="here")
    assert refused.value.fields["domain"] == "a"
    assert "etl-assets tables repair" in refused.value.fix


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.update(format=2),
        lambda d: d["accepted"].update(base=BASE),
        lambda d: (d.update(format=2), d["accepted"].update(base=BASE | {"first": 0})),
        lambda d: d.update(format=3),
    ],
)
def test_a_register_without_checksum_has_a_base_if_its_format_says_so(spoil):
    spoiled = document() | {"format": 1}
    spoil(spoiled)
    with pytest.raises(ReplicaCorrupt, match="the register a: here cannot be read"):
        decode(json.dumps(spoiled).encode(), domain="a", key="here")


def test_a_register_of_a_later_release_says_so():
    with pytest.raises(ReplicaCorrupt, match="its format is 4, this program reads up to 3"):
        decode(sealed(document() | {"format": 4}), domain="a", key="here")


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"\xff"])
def test_a_register_that_is_no_json_object_is_corrupt(content):
    with pytest.raises(ReplicaCorrupt):
        decode(content, domain="a", key="here")
