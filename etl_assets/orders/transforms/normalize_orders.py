"""Raw events to normalized orders: typed, upcast to the newest version, enriched.

An event that breaks its contract gets the reason instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.contracts.rules import Matches, first_violation
from etl_assets.contracts.sql_text import identifier, string_literal
from etl_assets.orders.event_contracts import (
    EVENT_CONTRACTS,
    EventContract,
    EventType,
    PayloadColumn,
    PayloadField,
)
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Contracts = Mapping[EventType, EventContract]

_JUDGED_COLUMNS = (
    "order_id",
    "event_type",
    "order_status",
    "amount",
    "currency",
    "customer_id",
    "occurred_at",
)
_QUOTE = string_literal('"')
_AMOUNT_TEXT = Matches(r"-?[0-9]{1,16}([.][0-9]{1,2})?", "a decimal number")


def normalize_orders(
    events: DataFrame, customers: DataFrame, contracts: Contracts = EVENT_CONTRACTS
) -> DataFrame:
    """Type, upcast and enrich events; every input row becomes one output row.

    Args:
        events: raw_events' columns.
        customers: `customer_id, customer_region`, one row per customer. An unknown customer has a null
            region.
        contracts: Payload contracts by event type.

    Returns:
        The input's `offset` as `raw_offset`, `payload`, `source`, `source_position`, the order columns of
        normalized_orders, and `reason`, `error`, which are both null for a row that meets its contract.
    """
    from pyspark.sql import functions as F

    names = sorted({name for contract in contracts.values() for name in contract.payload_names()}) or [
        "amount"
    ]
    fields = ", ".join(f"{identifier(name)} STRING" for name in names)
    parsed = events.withColumn("__payload", F.expr(f"from_json(payload, {string_literal(fields)})"))
    texts = parsed.select(
        "*", *(F.expr(_text_sql(column, contracts)).alias(f"__{column.value}") for column in PayloadColumn)
    )
    typed = texts.select(
        F.col("offset").alias("raw_offset"),
        "event_id",
        "tenant_id",
        F.col("aggregate_id").alias("order_id"),
        "event_type",
        F.expr(_by_type({name: string_literal(c.status.value) for name, c in contracts.items()})).alias(
            "order_status"
        ),
        F.expr(_amount_sql()).alias("amount"),
        F.col("__currency").alias("currency"),
        F.col("__customer_id").alias("customer_id"),
        "occurred_at",
        F.to_date("occurred_at").alias("event_date"),
        "schema_version",
        "trace_id",
        "span_id",
        "payload",
        "source",
        "source_position",
        "partition_date",
        "__amount",
    )
    judged = typed.select("*", F.expr(_judgement_sql(contracts)).alias("__judgement")).select(
        "*", F.col("__judgement.reason").alias("reason"), F.col("__judgement.error").alias("error")
    )
    return judged.drop("__amount", "__judgement").join(customers, "customer_id", "left")


def _text_sql(column: PayloadColumn, contracts: Contracts) -> str:
    """Return SQL for the text of a payload column, from the field of the event's type and version."""
    by_type = {}
    for event_type, contract in contracts.items():
        for field in contract.fields:
            if field.column is column:
                by_type[event_type] = _by_version(field, contract)
    return _by_type(by_type, otherwise="CAST(NULL AS STRING)")


def _by_version(field: PayloadField, contract: EventContract) -> str:
    cases = []
    for version in range(1, contract.newest_version + 1):
        origin = contract.origin(field.name, version)
        if origin.field is None:
            value = "CAST(NULL AS STRING)" if origin.default is None else string_literal(origin.default)
        else:
            value = _exact_text(field, origin.field)
        cases.append(f"WHEN schema_version = {version} THEN {value}")
    return f"CASE {' '.join(cases)} END"


def _exact_text(field: PayloadField, name: str) -> str:
    """Return SQL for a field's value as text, with every digit.

    A value of another JSON type becomes the empty text, which no contract accepts. `from_json` returns a
    string as it is, but reads a number through a double. The payload is canonical, so a value that follows
    its key exactly as `from_json` returns it was not changed; any other value is read again, exactly. The
    text of the key may also belong to a nested field, or end the name of another one. Only if it occurs once,
    it is this field's.
    """
    value = f"__payload.{identifier(name)}"
    key, path = string_literal(f'"{name}":'), string_literal("$." + name)
    exact = "try_parse_json(payload)"
    quoted = f"contains(payload, concat({key}, {_QUOTE}, {value}, {_QUOTE}))"
    once = f"substring_index(payload, {key}, 2) = payload"
    if field.column is not PayloadColumn.AMOUNT:
        kind = f"schema_of_variant(variant_get({exact}, {path}, 'variant'))"
        return (
            f"CASE WHEN {value} IS NULL OR ({quoted} AND {once}) OR {kind} = 'STRING' THEN {value} ELSE ''"
            " END"
        )
    verbatim = " OR ".join(
        f"contains(payload, concat({key}, {value}, {string_literal(after)}))" for after in (",", "}")
    )
    return (
        f"CASE WHEN {value} IS NULL OR (({quoted} OR ({value} RLIKE '^-?[0-9]' AND ({verbatim}))) AND {once})"
        f" THEN {value} ELSE coalesce(try_variant_get({exact}, {path}, 'string'), '') END"
    )


def _amount_sql() -> str:
    """Return SQL for the amount, NULL for a text that is not an amount.

    No input of a producer may make the query fail.
    """
    pattern = string_literal(_AMOUNT_TEXT.whole_value_pattern)
    return f"CASE WHEN __amount RLIKE {pattern} THEN try_cast(__amount AS DECIMAL(18,2)) END"


def _by_type(values: Mapping[EventType, str], otherwise: str = "NULL") -> str:
    if not values:
        return otherwise
    cases = " ".join(
        f"WHEN event_type = {string_literal(name)} THEN {value}" for name, value in values.items()
    )
    return f"CASE {cases} ELSE {otherwise} END"


def _judgement_sql(contracts: Contracts) -> str:
    """Return SQL for `STRUCT<reason, error>` of the first violation of a row, null for a valid row."""
    newest = _by_type({name: str(contract.newest_version) for name, contract in contracts.items()})
    unknown = _judgement(DeadLetterReason.UNKNOWN_EVENT_TYPE, "'the event type has no contract'")
    newer = _judgement(
        DeadLetterReason.UNSUPPORTED_SCHEMA_VERSION,
        f"concat('schema_version is ', schema_version, ', the newest known one is ', {newest})",
    )
    missing = _by_type({name: _missing_sql(contract) for name, contract in contracts.items()})
    incomplete = _judgement(
        DeadLetterReason.INVALID_PAYLOAD, f"concat('payload.', {missing}, ' is missing or null')"
    )
    no_amount = _judgement(
        DeadLetterReason.INVALID_PAYLOAD,
        "'payload.amount is not a decimal number of at most 16 digits before and 2 after the point'",
    )
    columns = [NORMALIZED_ORDERS.column(name) for name in _JUDGED_COLUMNS]
    violation = first_violation(columns)
    broken = _judgement(DeadLetterReason.CONTRACT_VIOLATION, violation)
    return (
        f"CASE WHEN {newest} IS NULL THEN {unknown} WHEN schema_version > {newest} THEN {newer} WHEN"
        f" {missing} IS NOT NULL THEN {incomplete} WHEN __amount IS NOT NULL AND amount IS NULL THEN"
        f" {no_amount} WHEN {violation} IS NOT NULL THEN {broken} END"
    )


def _missing_sql(contract: EventContract) -> str:
    """Return SQL for the name of the first required payload field without a value."""
    cases = " ".join(
        f"WHEN {'__amount' if field.column is PayloadColumn.AMOUNT else field.column.value} IS NULL"
        f" THEN {string_literal(field.name)}"
        for field in contract.fields
        if field.required
    )
    return f"CASE {cases} END" if cases else "CAST(NULL AS STRING)"


def _judgement(reason: DeadLetterReason, error: str) -> str:
    return f"named_struct('reason', {string_literal(reason.value)}, 'error', {error})"
