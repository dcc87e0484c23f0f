"""Which changes of a captured table's columns are followed, without a server."""

from __future__ import annotations

import pytest

from etl_assets.pipelines.postgres_cdc_spec import SchemaChangePolicy
from etl_assets.sources.captures.followed_columns import followed_declaration, has_columns, wider_type

REJECT, ADD, WIDEN, QUARANTINE = SchemaChangePolicy
FILM = {"name": "film", "columns": {"id": {"type": "bigint"}, "n_": {"type": "int", "from": "n"}}}


@pytest.mark.parametrize(
    ("held", "found", "wanted"),
    [
        ("INT", "INT", "INT"),
        ("INT", "BIGINT", "BIGINT"),
        ("BIGINT", "INT", "BIGINT"),
        ("STRING", "INT", "STRING"),
        ("INT", "STRING", None),
        ("DOUBLE", "INT", "DOUBLE"),
        ("DOUBLE", "BIGINT", None),
        ("DECIMAL(10,2)", "DECIMAL(8,4)", "DECIMAL(12,4)"),
        ("DECIMAL(38,2)", "DECIMAL(38,4)", None),
        ("DECIMAL(12,2)", "INT", "DECIMAL(12,2)"),
        ("DECIMAL(11,2)", "INT", None),
        ("DECIMAL(20,2)", "BIGINT", None),
        ("INT", "DECIMAL(12,2)", None),
        ("DATE", "TIMESTAMP", None),
        ("ARRAY<INT>", "ARRAY<INT>", "ARRAY<INT>"),
        ("ARRAY<INT>", "ARRAY<BIGINT>", None),
    ],
)
def test_the_type_that_holds_what_was_stored_and_what_comes(held, found, wanted):
    assert wider_type(held, found) == wanted


def with_columns(**columns):
    return {"name": "film", "columns": {"id": {"type": "bigint"}} | columns}


@pytest.mark.parametrize(
    ("found", "by", "wanted"),
    [
        (with_columns(n_={"type": "bigint", "from": "n"}), {WIDEN, QUARANTINE}, "bigint"),
        (with_columns(n={"type": "bigint"}), {WIDEN, QUARANTINE}, "bigint"),
        (with_columns(n_={"type": "string", "from": "n"}), set(), None),
        (with_columns(), {ADD, WIDEN, QUARANTINE}, None),
        (with_columns(n_={"type": "int", "from": "n"}, m={"type": "int"}), {ADD, WIDEN, QUARANTINE}, "int"),
        (FILM, {REJECT, ADD, WIDEN, QUARANTINE}, "int"),
    ],
)
def test_a_declaration_follows_its_source_by_the_policy(found, by, wanted):
    for policy in SchemaChangePolicy:
        after = followed_declaration(FILM, found, policy)
        assert (after is not None) is (policy in by)
        if after is not None:
            of_n = [c["type"] for name, c in after["columns"].items() if c.get("from", name) == "n"]
            assert of_n == ([] if wanted is None else [wanted])


def test_another_copy_takes_types_as_they_are_and_never_makes_one_narrower():
    wide = with_columns(n={"type": "bigint"})
    assert followed_declaration(wide, with_columns(n={"type": "int"}), None) == wide
    text = with_columns(n={"type": "string"})
    assert followed_declaration(wide, text, None) == text


def test_a_process_knows_all_columns_only_with_their_types():
    assert has_columns(FILM, {"id": "BIGINT", "n_": "INT", "more": "INT"})
    assert not has_columns(FILM, {"id": "BIGINT", "n_": "BIGINT"})
    assert not has_columns(FILM, {"id": "BIGINT"})
    assert has_columns({}, {})
