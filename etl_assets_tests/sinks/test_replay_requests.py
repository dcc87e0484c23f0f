"""Decisions about keys that were requested again, without a target."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.key_values import key_values, parse_row
from etl_assets.delta.table import Table
from etl_assets.sinks.decision import DeliveryExtent, Head, extent_of
from etl_assets.sinks.position import SinkPosition
from etl_assets.sinks.replay_requests import content_of_request, newest_request, requests_after
from etl_assets.sources.replays import record_again, replays_folder, row_again, submit_replays
from etl_assets.steps.requested_rows import PastDelivery, delivered_with
from etl_assets_tests.reference.tables import local_domain
from etl_assets_tests.sinks.contract import CONTRACT

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
LETTER, OTHER = "a" * 64, "b" * 64


def position(replays: int = -1, version: int = 3) -> SinkPosition:
    return SinkPosition(table_id="a-b", version=version, tombstones=2, replays=replays)


def test_a_position_is_stored_as_before_until_there_is_a_replay():
    assert position().as_json() == {"table_id": "a-b", "version": 3, "tombstones": 2}
    assert position(0).as_json() == {"table_id": "a-b#replays=0", "version": 3, "tombstones": 2}
    for each in (position(), position(0), position(17)):
        assert SinkPosition.from_json(each.as_json()) == each
        assert SinkPosition.stored(each.stored_id, each.version, each.tombstones) == each


def test_a_release_that_knows_no_replays_delivers_everything():
    found = SinkPosition(table_id=position(5).stored_id, version=3, tombstones=2)
    assert extent_of(found, Head(position=position())) is DeliveryExtent.WHOLE


def test_a_request_alone_is_something_to_deliver():
    assert extent_of(position(4), Head(position=position(4))) is DeliveryExtent.NOTHING
    assert extent_of(position(4), Head(position=position(5))) is DeliveryExtent.NEW
    assert extent_of(position(), Head(position=position(1))) is DeliveryExtent.NEW


def past(after: int, rejected: int | None, *, whole: bool | None = False) -> PastDelivery:
    return PastDelivery(after=after, before=None, whole=whole, rejected=rejected, ended_at=NOON)


@pytest.mark.parametrize(
    ("deliveries", "expected"),
    [
        ([], None),  # it is not delivered yet
        ([past(2, 0)], None),
        ([past(3, 0)], 3),
        ([past(5, 0), past(6, 0)], 5),
        ([past(1, 9), past(3, 0)], 3),  # what was rejected before the row was written was another one
        ([past(3, 1)], None),  # it may be the rejected one
        ([past(3, 0), past(3, 1)], None),  # it may have been requested, and rejected
        ([past(3, None)], None),  # its process died before it was known
        ([past(3, 1), past(4, 0)], None),
        ([past(3, 1), past(4, 0, whole=True)], 4),  # everything was accepted since
        ([past(3, 1), past(4, 0, whole=True), past(5, 2)], None),
        ([past(3, 1), past(4, 0, whole=None)], None),
    ],
)
def test_a_target_certainly_has_a_row_if_nothing_was_rejected_since_it_was_delivered(deliveries, expected):
    assert delivered_with(3, deliveries) == expected


KEYS = TableContract(
    name="keys",
    description="Keys of every type.",
    columns=(
        Column("number", "BIGINT", "A number."),
        Column("price", "DECIMAL(18,2)", "A decimal."),
        Column("day", "DATE", "A day."),
        Column("at", "TIMESTAMP", "A time."),
        Column("flag", "BOOLEAN", "Yes or no."),
        Column("name", "STRING", "A text."),
    ),
    merge_key=("number", "price", "day", "at", "flag", "name"),
)


@pytest.mark.parametrize(("price", "at"), [('"12.30"', "12:00:00+00:00"), ("12.3", "12:00:00Z")])
def test_keys_are_read_from_the_form_of_each_target(price, at):
    text = (
        f'{{"number": 9007199254740993, "price": {price}, "day": "2026-03-01", "at": "2026-03-01T{at}",'
        ' "flag": true, "name": "Ü", "other": NaN}'
    )
    assert key_values(parse_row(text), KEYS) == (
        9007199254740993,
        Decimal("12.30"),
        NOON.date(),
        NOON,
        True,
        "Ü",
    )


@pytest.mark.parametrize("text", ['{"id": null}', '{"id": [1]}', "{}", "[]", "{", '{"id": "x"}'])
def test_a_record_without_the_keys_is_refused(text):
    if text == '{"id": null}':
        assert key_values(parse_row(text), CONTRACT) == (None,)
        return
    with pytest.raises(ValueError, match=r".+"):
        key_values(parse_row(text), CONTRACT)


def test_each_attempt_is_requested_once_and_by_its_sink_alone(tmp_path, monkeypatch):
    domain = local_domain(tmp_path / "data")
    from etl_assets.contracts.tables import REPLAYS

    table = Table(name=REPLAYS.name, domain=domain, contract=REPLAYS)
    stage = next(each.name for each in domain.catalog.stages if each.rejects is not None)
    monkeypatch.setattr("etl_assets.sources.replays._sinks", lambda table: frozenset({"films_to_out"}))

    def request(letter: str, attempt: int, by: str = "anna") -> None:
        content = content_of_request({"id": 7}, NOON, by)
        submit_replays(domain, [row_again(NOON.date(), letter, attempt, content, stage="films_to_out")])

    assert newest_request(table.snapshot(), "films_to_out", -1) == -1
    request(LETTER, 2)
    request(LETTER, 2, by="berta")  # two at once are one
    submit_replays(domain, [record_again(NOON.date(), OTHER, 2, b"x", stage=stage)])
    request(LETTER, 3)
    replays = table.snapshot()
    assert newest_request(replays, "films_to_out", -1) == 3
    found = requests_after(replays, "films_to_out", CONTRACT, -1, up_to=3)
    assert [(each.attempt, each.keys, each.number, each.rejected_at) for each in found] == [
        (2, (7,), 1, NOON),
        (3, (7,), 3, NOON),
    ]
    assert requests_after(replays, "films_to_out", CONTRACT, 1, up_to=2) == ()
    other_keys = requests_after(replays, "films_to_out", KEYS, -1, up_to=3)
    assert [each.problem is None for each in other_keys] == [False, False], "the table has other keys now"
    assert newest_request(replays, "films_to_out", 3) == 3
    monkeypatch.setattr(type(replays), "dataset", None)
    assert newest_request(table.snapshot(), "films_to_out", -1) == 3, "a version is read once"
    assert list(replays_folder(domain, "films_to_out").rglob("*.jsonl")) == [], "it needs no file"
