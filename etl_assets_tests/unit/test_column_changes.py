"""What a changed column of a followed table means: every kind of change, with every policy."""

from __future__ import annotations

import pytest

from etl_assets.pipelines.postgres_cdc_spec import SchemaChangePolicy
from etl_assets.sources.postgres_cdc.column_changes import (
    ColumnChange,
    Effect,
    changed_columns,
    decide,
    holds,
)
from etl_assets.sources.postgres_cdc.messages import RelationColumn
from etl_assets.sources.postgres_cdc.types import BUILT_IN_TYPES

_OIDS = {each.name: oid for oid, each in BUILT_IN_TYPES.items()}
POLICIES = tuple(SchemaChangePolicy)


def column(name: str, type_: str = "int4", *size: int) -> RelationColumn:
    modifier = -1 if not size else (size[0] << 16 | size[1]) + 4 if len(size) == 2 else size[0] + 4
    return RelationColumn(name, _OIDS[type_], modifier, name == "id")


ID, PRICE, NOTE = column("id"), column("price", "numeric", 9, 2), column("note", "text")
TABLE = (ID, PRICE, NOTE)
DECLARED = {"id": "BIGINT", "price": "DECIMAL(12,4)"}
"""`note` is not declared."""

TAKEN, STOPS, QUARANTINED = Effect.TAKEN, Effect.STOPS, Effect.QUARANTINED
CASES = {
    "nothing": (TABLE, (TAKEN, TAKEN, TAKEN, TAKEN)),
    "added": ((*TABLE, column("more")), (STOPS, TAKEN, TAKEN, TAKEN)),
    "dropped": ((ID, PRICE), (STOPS, TAKEN, TAKEN, TAKEN)),
    "renamed": ((ID, PRICE, column("notes", "text")), (STOPS, TAKEN, TAKEN, TAKEN)),
    "retyped": ((ID, PRICE, column("note", "jsonb")), (STOPS, TAKEN, TAKEN, TAKEN)),
    "declared, dropped": ((ID, NOTE), (STOPS, STOPS, STOPS, QUARANTINED)),
    "declared, renamed": ((ID, column("cost", "numeric", 9, 2), NOTE), (STOPS, STOPS, STOPS, QUARANTINED)),
    "declared, wider and held": ((ID, column("price", "numeric", 12, 4), NOTE), (STOPS, STOPS, TAKEN, TAKEN)),
    "declared, wider and not held": (
        (ID, column("price", "numeric", 13, 4), NOTE),
        (STOPS, STOPS, STOPS, QUARANTINED),
    ),
    "declared, another type": ((ID, column("price", "text"), NOTE), (STOPS, STOPS, STOPS, QUARANTINED)),
    "key, wider": ((column("id", "int8"), PRICE, NOTE), (STOPS, STOPS, TAKEN, TAKEN)),
}


@pytest.mark.parametrize("number", range(len(POLICIES)), ids=POLICIES)
@pytest.mark.parametrize("case", CASES)
def test_every_change_with_every_policy(case, number):
    after, effects = CASES[case]
    found = decide(TABLE, after, DECLARED, POLICIES[number])
    assert found.effect is effects[number]
    assert bool(found.because) == (effects[number] is not TAKEN)


@pytest.mark.parametrize("policy", POLICIES)
def test_columns_that_are_seen_first_and_those_that_were_declared_before_are_taken(policy):
    assert decide(None, (ID,), DECLARED, policy).effect is TAKEN
    assert decide((ID, NOTE), TABLE, DECLARED, policy).effect is TAKEN
    renamed = (ID, column("cost", "numeric", 9, 2), NOTE)
    assert decide(TABLE, renamed, {"id": "BIGINT", "cost": "DECIMAL(12,4)"}, policy).effect is TAKEN


@pytest.mark.parametrize("policy", POLICIES)
def test_one_change_that_is_not_taken_decides_and_is_named_alone(policy):
    after = (ID, NOTE, column("more"))
    found = decide(TABLE, after, DECLARED, policy)
    assert found.effect is not TAKEN
    named = {str(each) for each in found.because}
    assert named == {"price was dropped"} | ({"more was added"} if policy == "reject" else set())


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (TABLE, TABLE, []),
        (TABLE, (PRICE, ID, NOTE), ["dropped", "added"]),
        ((ID, PRICE), (ID, column("cost", "numeric", 9, 2)), ["renamed"]),
        ((ID, PRICE), (ID, column("cost", "text")), ["dropped", "added"]),
        ((ID, PRICE, NOTE), (column("key"), column("cost", "numeric", 9, 2), NOTE), ["renamed", "renamed"]),
        ((ID, PRICE), (ID, PRICE, NOTE), ["added"]),
        ((ID, NOTE), (ID, column("note", "varchar", 10)), ["retyped"]),
    ],
)
def test_what_changed_is_found_by_names_places_and_types(before, after, expected):
    assert sorted(each.change for each in changed_columns(before, after)) == sorted(
        map(ColumnChange, expected)
    )


@pytest.mark.parametrize(
    ("declared", "type_", "size", "expected"),
    [
        ("STRING", "jsonb", (), True),
        ("INT", "int2", (), True),
        ("INT", "int8", (), False),
        ("BIGINT", "int8", (), True),
        ("BIGINT", "numeric", (5, 0), False),
        ("DOUBLE", "float4", (), True),
        ("DOUBLE", "int8", (), False),
        ("BOOLEAN", "bool", (), True),
        ("DATE", "timestamp", (), False),
        ("TIMESTAMP", "timestamptz", (), True),
        ("DECIMAL(18,2)", "int4", (), True),
        ("DECIMAL(18,2)", "int8", (), False),
        ("DECIMAL(9,2)", "numeric", (), False),
        ("DECIMAL(9,2)", "numeric", (9, 2), True),
        ("DECIMAL(9,2)", "numeric", (9, 3), False),
        ("ARRAY<INT>", "_int4", (), False),
    ],
)
def test_which_types_hold_all_values_of_a_column(declared, type_, size, expected):
    assert holds(declared, column("x", type_, *size)) is expected


def test_changes_are_said_with_their_types():
    changes = changed_columns((ID, PRICE), (column("id", "int8"), column("price", "varchar", 20), NOTE))
    assert [str(each) for each in changes] == [
        "id is int8 instead of int4",
        "price is varchar(20) instead of numeric(9,2)",
        "note was added",
    ]
