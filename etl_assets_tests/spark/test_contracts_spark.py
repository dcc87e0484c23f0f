"""What contracts say holds in Spark: types, SQL, and pandera mean the same thing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from etl_assets.contracts import pandera_models
from etl_assets.contracts.arrow_rules import violations_in_process
from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.pandera_models import Violation, violations
from etl_assets.contracts.rules import (
    AtLeast,
    AtMost,
    Matches,
    NotEmpty,
    NotNull,
    OneOf,
    Rule,
    first_violation,
)
from etl_assets.contracts.spark_types import struct_type
from etl_assets.contracts.sql_text import string_literal
from etl_assets.delta.log.new_entry import FirstEntry
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets_tests.reference.column_rules import NASTY, RULES, holds, rows
from etl_assets_tests.reference.tables import ALL_TABLES

pytestmark = pytest.mark.spark

# An example is a Spark job or many: few and large ones, no shrinking, no deadline.
few_large_examples = settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def frame_of(spark, ddl: str, data: Sequence[tuple]):
    return spark.createDataFrame(list(data), ddl)


def table_of(columns: Sequence[Column]) -> TableContract:
    row_id = Column("row_id", "BIGINT", "The row.")
    return TableContract(
        name="checked", description="To be checked.", columns=(row_id, *columns), merge_key=("row_id",)
    )


def one_column(name: str, type_: str, rule: Rule) -> Column:
    return Column(name, type_, "Checked.", nullable=True, rules=(rule,))


@few_large_examples
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(NASTY), min_size=50))
def test_a_text_survives_as_a_literal(spark, generated):
    written = [*NASTY, *generated]
    statement = f"SELECT {', '.join(f'{string_literal(text)} AS c{i}' for i, text in enumerate(written))}"
    assert list(spark.sql(statement).collect()[0]) == written


@few_large_examples
@given(st.lists(rows, min_size=60, max_size=200))
def test_the_sql_of_every_rule_means_what_the_rule_means_and_is_never_null(spark, data):
    frame = frame_of(spark, "text STRING, number BIGINT, amount DECIMAL(18,2)", data)
    judged = frame.selectExpr(
        "*", *(f"{rule.sql(column)} AS r{i}" for i, (column, _, rule) in enumerate(RULES))
    )
    for row in judged.collect():
        for i, (column, _, rule) in enumerate(RULES):
            assert row[f"r{i}"] is holds(rule, row[column]), (rule, row[column])


PATTERN_CHARACTERS = "abcABC019/_-"
atoms = st.one_of(
    st.sampled_from(list(PATTERN_CHARACTERS)),
    st.builds(
        lambda negated, inside: f"[{'^' if negated else ''}{inside}]",
        st.booleans(),
        st.sampled_from(["a-c", "A-Z0", "0-9a-f", "/", "$.*+?", "ab-", "^^", " ~"]),
    ),
)
counts = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?", "{1,2}?"])
patterns = st.recursive(
    st.tuples(atoms, counts).map("".join),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        inner.map(lambda pattern: f"({pattern})?"),
    ),
    max_leaves=4,
)
subjects = st.text(PATTERN_CHARACTERS + "$.*^ é\n\r\u2028", max_size=5)


@few_large_examples
@given(st.lists(patterns, min_size=20, max_size=40), st.lists(subjects, min_size=60, max_size=200))
def test_a_pattern_means_the_same_in_spark_and_in_python(spark, written, data):
    rules = [Matches(pattern, "right") for pattern in written]
    frame = frame_of(spark, "text STRING", [(text,) for text in data])
    judged = frame.selectExpr("text", *(f"{rule.sql('text')} AS r{i}" for i, rule in enumerate(rules)))
    for row in judged.collect():
        for i, rule in enumerate(rules):
            assert row[f"r{i}"] is holds(rule, row.text), (rule.pattern, row.text)


@few_large_examples
@given(st.lists(rows, min_size=60, max_size=200))
def test_pandera_finds_nothing_in_values_that_the_rules_allow(spark, data):
    contract = table_of([one_column(f"c{i}", type_, rule) for i, (_, type_, rule) in enumerate(RULES)])
    index = {"text": 0, "number": 1, "amount": 2}
    good = [
        (
            row_id,
            *(row[index[name]] if holds(rule, row[index[name]]) else None for name, _, rule in RULES),
        )
        for row_id, row in enumerate(data)
    ]
    assert violations(contract, spark.createDataFrame(good, struct_type(contract))) == ()


def test_pandera_finds_every_single_value_that_a_rule_forbids(spark):
    values = {
        "text": ["", "ABC\n", "abcd", "ABCD", "0aF", "xff ", "a/b", "nothing", "\n", "𝟘𝟘𝟘𝟘", "it''s", *NASTY],
        "number": [-(2**63), -1, 1, 8, 2**62 + 1, 2**63 - 1],
        "amount": list(
            map(Decimal, ("-0.01", "0.00", "1000.01", "999999999999999999e-2", "-9999999999999999.99"))
        ),
    }
    forbidden = [
        (type_, rule, value)
        for name, type_, rule in RULES
        for value in values[name]
        if not holds(rule, value)
    ]
    forbidden_rules = {rule for _, rule, _ in forbidden}
    never_broken = {AtLeast(-(2**63)), AtMost(10**17)}
    assert forbidden_rules == {rule for _, _, rule in RULES} - never_broken
    contract = table_of([one_column(f"c{i}", type_, rule) for i, (type_, rule, _) in enumerate(forbidden)])
    row = (1, *(value for _, _, value in forbidden))
    found = violations(contract, spark.createDataFrame([row], struct_type(contract)))
    assert found == tuple(
        Violation(table="checked", column=f"c{i}", check=rule.explain(f"c{i}"), count=1)
        for i, (_, rule, _) in enumerate(forbidden)
    )


def test_every_kind_of_rule_is_tried_here_and_has_its_pandera_check():
    tried = {type(rule) for _, _, rule in RULES} | {NotNull}
    # By name: a dataclass with slots leaves its first version among the subclasses.
    assert {rule.__name__ for rule in tried} == {rule.__name__ for rule in Rule.__subclasses__()}


ORDER_COLUMNS = (
    Column("order_id", "STRING", "The order.", rules=(NotEmpty(),)),
    Column("amount", "DECIMAL(18,2)", "What it costs.", nullable=True, rules=(AtLeast(0),)),
    Column("status", "STRING", "Where it is.", rules=(OneOf(("it's", "${spark.app.name}")),)),
    Column("parts", "MAP<STRING, DECIMAL(18,2)>", "Amounts by part."),
)
ORDERS = TableContract(
    name="orders", description="Orders.", columns=ORDER_COLUMNS, merge_key=("order_id",), ordering="amount"
)
GOOD = ("o1", Decimal("1.00"), "it's", {"p": Decimal("1.00")})


def orders(spark, *data: tuple):
    return frame_of(
        spark, "order_id STRING, amount DECIMAL(18,2), status STRING, parts MAP<STRING, DECIMAL(18,2)>", data
    )


def test_the_first_violation_is_null_for_a_good_row_and_else_the_first_broken_rule(spark):
    cases = [
        (GOOD, None),
        (("o1", None, "${spark.app.name}", {}), None),
        ((None, Decimal("-1.00"), "x", {}), "order_id must not be null"),
        (("", Decimal("-1.00"), "x", {}), "order_id must not be empty"),
        (("o1", Decimal("-1.00"), "x", {}), "amount must be at least 0"),
        (("o1", None, "it''s", {}), "status must be one of it's, ${spark.app.name}"),
        (("o1", None, None, {}), "status must not be null"),
        (("o1", None, "it's", None), "parts must not be null"),
    ]
    frame = orders(spark, *(row for row, _ in cases)).selectExpr(f"{first_violation(ORDER_COLUMNS)} AS error")
    assert [row.error for row in frame.collect()] == [error for _, error in cases]


def test_the_full_model_finds_nothing_in_good_rows(spark):
    assert violations(ORDERS, orders(spark, GOOD, ("o2", None, "it's", {}))) == ()


def test_the_full_model_counts_the_rows_that_break_each_rule_and_shows_no_value(spark):
    broken = orders(
        spark,
        GOOD,
        ("o1", Decimal("-1.00"), "it's", {}),
        ("o2", Decimal("-2.00"), None, {}),
        (None, None, "secret", None),
        ("o2", None, "secret", {}),
    )
    found = violations(ORDERS, broken)
    assert [(violation.column, violation.check, violation.count) for violation in found] == [
        ("order_id", "order_id must not be null", 1),
        ("amount", "amount must be at least 0", 2),
        ("status", "status must not be null", 1),
        ("status", "status must be one of it's, ${spark.app.name}", 2),
        ("parts", "parts must not be null", 1),
        ("order_id", "order_id must be unique", 2),
    ]
    assert {violation.table for violation in found} == {"orders"}
    assert not any("secret" in str(violation) for violation in found)


def test_a_missing_or_mistyped_column_is_told_without_looking_at_a_row(spark):
    frame = orders(spark, GOOD).selectExpr(
        "order_id", "CAST(amount AS DOUBLE) AS amount", "parts", "1 AS more"
    )
    found = violations(ORDERS, frame)
    assert [(violation.column, violation.check, violation.count) for violation in found] == [
        ("amount", "column 'amount' is double (expected decimal(18,2))", None),
        ("status", "no column 'status' (expected string)", None),
    ]


def test_nested_values_that_spark_takes_for_never_null_are_the_declared_type(spark):
    frame = orders(spark, GOOD).selectExpr(
        "order_id", "amount", "status", "map('p', CAST(1 AS DECIMAL(18,2))) AS parts"
    )
    assert not frame.schema["parts"].dataType.valueContainsNull
    assert violations(ORDERS, frame) == ()


def test_rows_that_cannot_be_computed_are_an_error_and_not_a_violation(spark):
    frame = orders(spark, GOOD).selectExpr(
        "order_id", "CAST(raise_error('disk gone') AS DECIMAL(18,2)) AS amount", "status", "parts"
    )
    with pytest.raises(Exception, match="disk gone"):
        violations(ORDERS, frame)


def test_settings_of_pandera_cannot_switch_the_check_off(spark):
    from pandera.config import ValidationDepth, config_context

    broken = orders(spark, ("o1", Decimal("-1.00"), "it's", {}))
    with config_context(validation_enabled=False, validation_depth=ValidationDepth.SCHEMA_ONLY):
        assert [violation.column for violation in violations(ORDERS, broken)] == ["amount"]


@pytest.mark.parametrize("contract", ALL_TABLES, ids=lambda contract: contract.name)
def test_every_table_has_a_model_that_takes_an_empty_frame(spark, contract):
    assert violations(contract, spark.createDataFrame([], struct_type(contract))) == ()


def test_the_model_is_built_once_and_also_finds_what_is_broken_when_it_stands_alone(spark):
    model = pandera_models.model(ORDERS)
    assert pandera_models.model(ORDERS) is model
    assert not model.validate(orders(spark, GOOD)).pandera.errors
    errors = model.validate(orders(spark, ("o1", Decimal("-1.00"), "it's", {}))).pandera.errors
    assert [found["check"] for found in errors["DATA"]["DATAFRAME_CHECK"]] == ["amount must be at least 0"]


def test_the_full_model_of_a_table_costs_a_handful_of_spark_jobs_however_many_its_rules(spark, tmp_path):
    contract = RAW_EVENTS
    FirstEntry(contract=contract, properties={}, user_metadata={}).put(tmp_path / "raw_events")
    frame = spark.read.format("delta").load(str(tmp_path / "raw_events"))
    spark.sparkContext.setJobGroup("full model", "counted by a test")
    try:
        assert violations(contract, frame) == ()
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("full model")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert len(jobs) < 10 < sum(len(column.all_rules) for column in contract.columns)


def test_a_row_of_raw_events_is_judged_by_its_contract(spark):
    contract = RAW_EVENTS
    now = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    good = {
        "offset": 0,
        "event_id": "e1",
        "tenant_id": "sp",
        "aggregate_id": "o1",
        "event_type": "OrderCreated",
        "schema_version": 1,
        "occurred_at": now,
        "payload": "{}",
        "fingerprint": "0" * 64,
        "trace_id": None,
        "span_id": None,
        "source": "landing",
        "source_position": "2024-05-01/a.jsonl:1",
        "ingest_domain": "local",
        "ingested_at": now,
        "batch_id": 1,
        "partition_date": now.date(),
    }
    cases = [
        ({}, None),
        ({"event_id": "x" * 512}, None),
        ({"event_id": "x" * 513}, "event_id must be at most 512 characters long"),
        ({"tenant_id": "a/b"}, "tenant_id must not contain '/'"),
        ({"schema_version": 0}, "schema_version must be at least 1"),
        ({"fingerprint": "0" * 63 + "A"}, "fingerprint must be 64 lower-case hexadecimal digits"),
        ({"offset": -1}, "offset must be at least 0"),
        ({"payload": ""}, "payload must not be empty"),
    ]
    # Spark may not check the frame's own NOT NULLs here: what is judged is the rows.
    data = [tuple((good | change)[name] for name in contract.names) for change, _ in cases]
    frame = spark.createDataFrame(data, struct_type(contract))
    judged = frame.selectExpr(f"{first_violation(contract.columns)} AS error")
    assert [row.error for row in judged.collect()] == [error for _, error in cases]


def test_doubles_are_judged_by_spark_as_by_arrow(spark):
    contract = TableContract(
        name="readings",
        description="Temperatures.",
        columns=(
            Column("reading_id", "STRING", "Its id."),
            Column("celsius", "DOUBLE", "Degrees.", nullable=True, rules=(AtLeast(0), AtMost(1))),
        ),
        merge_key=("reading_id",),
    )
    values = [1.5, -0.5, float("nan"), None, float("inf"), 0.25]
    frame = spark.createDataFrame(
        [(str(number), value) for number, value in enumerate(values)], struct_type(contract)
    )
    found = violations(contract, frame)
    assert [(each.check, each.count) for each in found] == [
        ("celsius must be at least 0", 1),
        ("celsius must be at most 1", 3),
    ]
    assert violations_in_process(contract, [frame.toArrow()]) == found
