"""Whose rows a transform takes is checked before Spark starts, with the line, and so are the columns of
several inputs.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from etl_assets import pipelines_documentation
from etl_assets.contracts.rules import AtLeast
from etl_assets.pipelines.resolved import resolved
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.pipelines.transform_inputs import OF_RECORDS
from etl_assets_tests.reference.declared_pipeline import declared, tables_of
from etl_assets_tests.unit.test_pipeline_file import GOOD, parsed, together
from etl_assets_tests.unit.test_pipeline_file import declared as declared_text


def file_of(*transforms: str) -> str:
    return GOOD + "transforms:\n" + "".join(f"  - {{{each}}}\n" for each in transforms)


def problems(*transforms: str) -> list[tuple[int | None, str, str, str]]:
    return [(each.line, each.field, each.message, each.fix) for each in parsed(file_of(*transforms)).problems]


A = 'name: a, inputs: [records], type: filter, where: "number > 1"'
B = 'name: b, inputs: [records], type: filter, where: "number < 1"'
END = 'inputs: [a, b], type: filter, where: "true"'


def test_branches_that_come_together_are_a_declaration():
    file = parsed(file_of(A, B, END))
    assert file.problems == ()
    assert file.spec is not None
    assert tables_of(file.spec).inputs == ((OF_RECORDS,), (OF_RECORDS,), (0, 1))


def test_without_inputs_a_transform_takes_the_rows_of_the_one_above():
    plain = 'type: filter, where: "true"'
    file = parsed(file_of(A, B, END, plain))
    assert file.spec is not None
    assert tables_of(file.spec).inputs[-1] == (2,)
    assert tables_of(declared(transforms=[{"type": "filter", "where": "true"}])).inputs == ((OF_RECORDS,),)


@pytest.mark.parametrize(
    ("transforms", "line", "field", "said", "fix"),
    [
        ((A, B, END.replace("b]", "bb]")), 11, "transforms[2].inputs[1]", "no transform above is named `bb`",
         "did you mean `b`? inputs here: records, a, b"),
        ((A.replace("records", "b"), B, END), 9, "transforms[0].inputs[0]", "`b` stands below:"
                                                                            " transforms[1]",
                                                                            "move it above"),
        ((A.replace("records", "a"), END.replace("[a, b]", "[a]")), 9, "transforms[0].inputs[0]",
        "`a` is this transform itself",
         "name one that stands above it"),
        ((A, B.replace("name: b", "name: a"), 'inputs: [a], type: filter, where:'
                                              ' "true"'), 10, "transforms[1].name",
         "`a` is the name of transforms[0] too", "a name of its own"),
        ((A, B, END.replace("[a, b]", "[b]")), 9, "transforms[0]", "nothing takes the rows of"
                                                                   " `a`", "name a in the `inputs`"),
        (('type: filter, where: "true"', A), 9, "transforms[0]", "nothing takes the rows of"
                                                                 " transforms[0]", "give it a `name`, and"),
        ((A.replace("name: a", "name: records"),), 9, "transforms[0].name", "stands for the records before"
                                                                            " any", "another name"),
        ((A.replace("name: a", "name: input"),), 9, "transforms[0].name", "stands for the rows that a"
                                                                          " `sql`", "another name"),
        ((A, END.replace("[a, b]", "[a, a]")), 10, "transforms[1].inputs", "stands twice", "name each once"),
        ((A.replace("[records]", "[]"),), 9, "transforms[0].inputs", "", ""),
        ((A, B, 'type: sql, inputs: [a, b], select: "select * from'
                ' a"'), 11, "transforms[2]", "needs `columns`", "columns of its result"),
    ],
)  # fmt: skip
def test_a_wrong_input_is_one_problem_with_line_and_fix(transforms, line, field, said, fix):
    (problem,) = problems(*transforms)
    assert problem[:2] == (line, field)
    assert said in problem[2]
    assert fix in problem[3]


def test_columns_of_a_branch_are_known_where_its_rows_are_taken():
    """A key that only the other branch has, and a lookup by it."""
    mapped = "name: b, inputs: [records], type: map, columns: {twice: {expression: number * 2, type: bigint}}"
    lookup = "inputs: [{}], type: lookup, table: regions, on: {{twice: code}}, columns: {{title: title}}"
    both = 'inputs: [b, c], type: filter, where: "true"'
    assert [each[:2] for each in problems(A, mapped, "name: c, " + lookup.format("a"), both)] == [
        (11, "transforms[2].on.twice")
    ]
    assert problems(mapped, lookup.format("b")) == []
    text = file_of(A, mapped, END).replace("keys: [number]", "keys: [twice]")
    assert parsed(text).problems == ()


def test_a_column_of_two_types_is_a_problem_that_names_both_inputs():
    as_text = "name: b, inputs: [records], type: map, columns: {number: {expression: country, type: string}}"
    text = (
        declared_text("suppliers")
        + "transforms:\n"
        + "".join(f"  - {{{each}}}\n" for each in (A, as_text, END))
    )
    assert together(suppliers=text) == {
        "suppliers": ["11 transforms[2].inputs: the column 'number' is BIGINT in `a`, and STRING in `b`"]
    }


def test_several_inputs_have_all_columns_and_the_rules_that_hold_in_each():
    doubled: dict[str, Any] = {
        "age": {"expression": "age * 2", "type": "int"},
        "more": {"expression": "1", "type": "int"},
    }
    tables = tables_of(
        declared(
            transforms=[
                {"name": "a", "type": "filter", "where": "true"},
                {"name": "b", "inputs": ["records"], "type": "map", "columns": doubled},
                {"inputs": ["a", "b"], "type": "filter", "where": "true"},
            ]
        )
    )
    columns = {column.name: column for column in tables.columns_before(2)}
    assert [*columns] == ["id", "age", "country", "updated_at", "more"]
    assert (columns["id"].nullable, columns["id"].rules) == (False, tables.parsed_columns[0].rules)
    assert AtLeast(0) in tables.parsed_columns[1].rules
    assert columns["age"].rules == ()
    assert columns["more"].nullable


def test_many_diamonds_are_looked_at_once_each():
    transforms: list[dict[str, Any]] = [{"name": "n0", "type": "filter", "where": "true"}]
    for number in range(40):
        above = transforms[-1]["name"]
        transforms += [
            {"name": f"l{number}", "inputs": [above], "type": "filter", "where": "true"},
            {"name": f"r{number}", "inputs": [above], "type": "filter", "where": "true"},
            {
                "name": f"n{number + 1}",
                "inputs": [f"l{number}", f"r{number}"],
                "type": "filter",
                "where": "true",
            },
        ]
    assert len(tables_of(declared(transforms=transforms)).table.columns) == 6


def test_show_names_the_inputs_and_is_a_declaration_again():
    file = parsed(file_of(A, B, END, 'type: filter, where: "true"'))
    shown = resolved(file, lambda name: pytest.fail(name))["declaration"]
    assert [each.get("inputs") for each in shown["transforms"]] == [
        ["records"],
        ["records"],
        ["a", "b"],
        None,
    ]
    again = PipelineSpec.model_validate(shown)
    assert file.spec is not None
    assert tables_of(again).inputs == tables_of(file.spec).inputs


@pytest.mark.parametrize("part", ["  - {type: filter, name: paid", "  - type: sql\n    inputs"])
def test_the_examples_of_the_page_are_good(part):
    """The union by itself, and the join in place of its last transform."""
    page = pipelines_documentation.render()
    union = page[page.index("transforms:\n  - {type: filter, name: paid") :].partition("```")[0]
    if part not in union:
        join = page[page.index(part) :].partition("```")[0]
        union = union[: union.index("  - type: map")] + textwrap.indent(textwrap.dedent(join), "  ")
    columns = "  order_id: bigint\n  kind: string\n  amount: decimal(18,2)\n"
    text = GOOD.replace("  number: bigint\n", columns).replace("keys: [number]", "keys: [order_id]") + union
    assert together(suppliers=text) == {"suppliers": []}
