"""A declaration that contradicts itself is refused when it is made, and says what to write instead."""

from __future__ import annotations

import pytest

from etl_assets.contracts.columns import Column, ColumnSource, TableContract
from etl_assets.contracts.rules import AtLeast, NotEmpty, NotNull, Rule
from etl_assets.errors import ContractError

KEY = Column("order_id", "STRING", "The order.", rules=(NotEmpty(),))
AMOUNT = Column("amount", "DECIMAL(18,2)", "What it costs.", nullable=True, rules=(AtLeast(0),))
DAY = Column("day", "DATE", "The day.")


def contract(
    *columns: Column,
    name: str = "orders",
    description: str = "Orders.",
    merge_key: tuple[str, ...] = ("order_id",),
    ordering: str | None = None,
    delta_partition: tuple[str, ...] = (),
    append_only: bool = False,
) -> TableContract:
    return TableContract(
        name=name,
        description=description,
        columns=columns,
        merge_key=merge_key,
        ordering=ordering,
        delta_partition=delta_partition,
        append_only=append_only,
    )


def column(
    name: str = "amount",
    type: str = "INT",
    description: str = "An amount.",
    rules: tuple[Rule, ...] = (),
    derived_from: tuple[str, ...] = (),
) -> Column:
    return Column(name, type, description, rules=rules, derived_from=derived_from)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: contract(KEY, AMOUNT, KEY), "more than one column order_id"),
        (lambda: contract(AMOUNT), "no column 'order_id' for its merge key"),
        (lambda: contract(KEY, AMOUNT, ordering="amuont"), "did you mean 'amount'"),
        (lambda: contract(KEY, delta_partition=("day",)), "no column 'day' for its Delta partition"),
        (lambda: contract(KEY, merge_key=()), "no merge key"),
        (lambda: contract(KEY, merge_key=("order_id", "order_id")), "names a column twice in its merge key"),
        (lambda: contract(KEY, AMOUNT, merge_key=("order_id", "amount")), "append_only=True"),
        (lambda: contract(KEY, column("m", "ARRAY<INT>"), delta_partition=("m",)), "partitioned by 'm'"),
        (lambda: contract(), "has no columns"),
        (lambda: contract(KEY, name="Orders"), "is named 'Orders'"),
        (lambda: contract(KEY, description=" "), "has no description"),
        (lambda: column(name="Amount"), "the column name 'Amount'"),
        (lambda: column(name="amount`; --"), "the column name"),
        (lambda: column(description=""), "the description of amount"),
        (lambda: column(description="two\nlines"), "the description of amount"),
        (lambda: column(type="FLOAT"), "is not a type a contract may use"),
        (lambda: column(type="STRING", rules=(AtLeast(0),)), "which is STRING"),
        (lambda: column(rules=(NotEmpty(),)), "which is INT"),
        (lambda: column(rules=(NotNull(),)), "NotNull follows from nullable=False"),
        (lambda: column(derived_from=("orders",)), "'table.column'"),
        (lambda: column(derived_from=("a.b.c",)), "'table.column'"),
    ],
)
def test_a_contradiction_is_refused_with_what_to_do(make, message):
    with pytest.raises(ContractError) as refused:
        make()
    assert message in str(refused.value)
    assert refused.value.fix


def test_only_an_append_only_table_may_have_a_null_in_its_merge_key():
    appended = contract(KEY, AMOUNT, merge_key=("order_id", "amount"), append_only=True)
    assert appended.merge_key == ("order_id", "amount")


def test_a_contract_is_a_value():
    assert contract(KEY, AMOUNT) == contract(KEY, AMOUNT)
    assert hash(contract(KEY, AMOUNT)) == hash(contract(KEY, AMOUNT))


def test_an_unknown_column_is_answered_with_the_near_miss():
    orders = contract(KEY, AMOUNT)
    assert orders.column("amount") is AMOUNT
    with pytest.raises(ContractError, match="did you mean 'amount'"):
        orders.column("amounts")
    with pytest.raises(ContractError, match="use one of order_id, amount"):
        orders.column("zzz")


def test_columns_can_be_left_out_by_name_and_only_by_a_name_that_is_there():
    orders = contract(KEY, AMOUNT, DAY)
    assert orders.without("amount", "day") == (KEY,)
    with pytest.raises(ContractError):
        orders.without("amounts")


def test_lineage_names_the_columns_that_come_from_other_tables_and_no_others():
    total = column("total", derived_from=("raw.payload", "rates.rate"))
    assert contract(KEY, total).lineage() == {
        "total": (ColumnSource(table="raw", column="payload"), ColumnSource(table="rates", column="rate"))
    }


def test_a_column_that_must_be_there_is_judged_for_that_first():
    assert KEY.all_rules == (NotNull(), NotEmpty())
    assert AMOUNT.all_rules == (AtLeast(0),)


def test_a_column_taken_from_a_table_points_back_to_it():
    assert KEY.taken_from("carts").derived_from == ("carts.order_id",)
