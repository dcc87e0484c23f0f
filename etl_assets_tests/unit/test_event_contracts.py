"""The chain of upcasters: where a field of the newest version stands in an older payload."""

from __future__ import annotations

import pytest

from etl_assets.errors import ContractError
from etl_assets.orders.event_contracts import (
    EVENT_CONTRACTS,
    EventContract,
    EventType,
    Origin,
    PayloadColumn,
    PayloadField,
    Upcaster,
)
from etl_assets.orders.order_status import OrderStatus

FIELDS = (
    PayloadField(name="buyer", column=PayloadColumn.CUSTOMER_ID, required=True),
    PayloadField(name="currency", column=PayloadColumn.CURRENCY, required=True),
)
THIRD = EventContract(
    status=OrderStatus.CREATED,
    fields=FIELDS,
    newest_version=3,
    upcasters=(
        Upcaster(from_version=1, renamed={"customer": "customer_id"}, defaults={"currency": "EUR"}),
        Upcaster(from_version=2, renamed={"buyer": "customer"}),
    ),
)


def test_the_newest_version_keeps_its_fields_where_they_are():
    assert THIRD.origin("buyer", 3) == Origin(field="buyer", default=None)


def test_a_field_renamed_twice_is_followed_back():
    assert THIRD.origin("buyer", 2) == Origin(field="customer", default=None)
    assert THIRD.origin("buyer", 1) == Origin(field="customer_id", default=None)


def test_a_field_that_was_not_there_yet_has_its_default_and_only_before_it_came():
    assert THIRD.origin("currency", 1) == Origin(field=None, default="EUR")
    assert THIRD.origin("currency", 2) == Origin(field="currency", default=None)


def test_every_name_that_any_version_uses_is_read():
    assert set(THIRD.payload_names()) == {"buyer", "customer", "customer_id", "currency"}


@pytest.mark.parametrize(
    ("newest", "upcasters"),
    [
        (2, ()),
        (1, (Upcaster(from_version=1),)),
        (3, (Upcaster(from_version=2), Upcaster(from_version=1))),
        (3, (Upcaster(from_version=1), Upcaster(from_version=1))),
        (3, (Upcaster(from_version=1),)),
    ],
)
def test_a_chain_with_a_gap_is_refused(newest, upcasters):
    with pytest.raises(ContractError, match=f"knows version {newest}"):
        EventContract(status=OrderStatus.CREATED, newest_version=newest, upcasters=upcasters)


def test_every_event_type_has_a_contract_and_every_status_an_event():
    assert set(EVENT_CONTRACTS) == set(EventType)
    assert {contract.status for contract in EVENT_CONTRACTS.values()} == set(OrderStatus)
