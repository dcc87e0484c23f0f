"""A type is one of a closed set and has one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.contracts import column_types
from etl_assets.contracts.column_types import ArrayType, DecimalType, MapType, ScalarType, StructType
from etl_assets.errors import ContractError

scalars = st.sampled_from(column_types.SCALARS).map(ScalarType)
decimals = st.integers(1, 38).flatmap(lambda p: st.builds(DecimalType, st.just(p), st.integers(0, p)))
names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


def _structs(fields):
    pairs = st.lists(st.tuples(names, fields), min_size=1, max_size=3, unique_by=lambda pair: pair[0])
    return pairs.map(tuple).map(StructType)


types = st.recursive(
    scalars | decimals,
    lambda inner: inner.map(ArrayType) | st.builds(MapType, inner, inner) | _structs(inner),
    max_leaves=6,
)


@given(types)
def test_a_type_reads_back_as_it_was_written(type_):
    assert column_types.parse(type_.ddl) == type_


@pytest.mark.parametrize(
    "ddl",
    [
        "",
        "FLOAT",
        "STRING STRING",
        "DECIMAL",
        "DECIMAL(18)",
        "DECIMAL(39,2)",
        "DECIMAL(2,3)",
        "DECIMAL(0,0)",
        "ARRAY<",
        "ARRAY<STRING",
        "ARRAY<STRING>>",
        "MAP<STRING>",
        "STRUCT<>",
        "STRUCT<a: INT, a: INT>",
        "STRUCT<A: INT>",
        "STRING NOT NULL",
        "STRING'",
        "INT; DROP TABLE x",
    ],
)
def test_anything_else_is_refused_and_the_types_are_named(ddl):
    with pytest.raises(ContractError) as refused:
        column_types.parse(ddl)
    assert "STRING, INT, BIGINT" in refused.value.fix


@pytest.mark.parametrize(
    ("ddl", "spelling"),
    [
        ("string", "STRING"),
        ("decimal(18, 2)", "DECIMAL(18,2)"),
        ("ARRAY<STRUCT<a:INT,b:INT>>", "ARRAY<STRUCT<a: INT, b: INT>>"),
        ("MAP<STRING,INT>", "MAP<STRING, INT>"),
    ],
)
def test_another_spelling_is_refused_with_the_right_one(ddl, spelling):
    with pytest.raises(ContractError) as refused:
        column_types.parse(ddl)
    assert refused.value.fix == f"write {spelling!r}"
