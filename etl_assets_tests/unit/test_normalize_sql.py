"""The SQL that normalizes is made from the contracts alone, and nothing in a contract can end a literal."""

from __future__ import annotations

from etl_assets.orders.event_contracts import (
    EVENT_CONTRACTS,
    EventContract,
    EventType,
    PayloadColumn,
    PayloadField,
    Upcaster,
)
from etl_assets.orders.order_status import OrderStatus
from etl_assets.orders.transforms.normalize_orders import _judgement_sql, _missing_sql, _text_sql

EVIL = "x'; DROP TABLE t --${y}"


def contracts(default: str = "EUR", name: str = "buyer") -> dict[EventType, EventContract]:
    return {
        EventType.ORDER_CREATED: EventContract(
            status=OrderStatus.CREATED,
            fields=(
                PayloadField(name=name, column=PayloadColumn.CUSTOMER_ID, required=True),
                PayloadField(name="currency", column=PayloadColumn.CURRENCY, required=True),
            ),
            newest_version=2,
            upcasters=(
                Upcaster(from_version=1, renamed={name: "customer_id"}, defaults={"currency": default}),
            ),
        )
    }


def test_each_version_reads_the_field_where_that_version_keeps_it():
    text = _text_sql(PayloadColumn.CUSTOMER_ID, contracts())
    first, second = text.index("schema_version = 1"), text.index("schema_version = 2")
    assert "`customer_id`" in text[first:second]
    assert "`buyer`" not in text[first:second]
    assert "`buyer`" in text[second:]


def test_a_default_stands_for_a_field_that_was_not_there_yet():
    assert "WHEN schema_version = 1 THEN 'EUR'" in _text_sql(PayloadColumn.CURRENCY, contracts())


def test_a_column_that_no_contract_fills_is_null():
    assert _text_sql(PayloadColumn.AMOUNT, contracts()) == "CAST(NULL AS STRING)"
    assert _text_sql(PayloadColumn.AMOUNT, {}) == "CAST(NULL AS STRING)"


def test_a_default_cannot_end_its_literal():
    text = _text_sql(PayloadColumn.CURRENCY, contracts(default=EVIL))
    assert "x'" not in text
    assert "${" not in text


def test_a_contract_without_required_fields_misses_nothing():
    assert _missing_sql(EVENT_CONTRACTS[EventType.ITEM_SHIPPED]) == "CAST(NULL AS STRING)"


def test_an_unknown_type_is_judged_before_its_version_and_that_before_its_payload():
    text = _judgement_sql(EVENT_CONTRACTS)
    order = [
        "UnknownEventType",
        "UnsupportedSchemaVersion",
        "is missing or null",
        "at most 16 digits",
        "ContractViolation",
    ]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
