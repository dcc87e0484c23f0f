"""A table may be laid out by the hour, day or month of a time; what cannot be one is a problem with its
line.
"""

from __future__ import annotations

import pytest

from etl_assets.pipelines.resolved import resolved
from etl_assets_tests.reference.declared_pipeline import PEOPLE, declared, tables_of
from etl_assets_tests.unit.test_pipeline_file import GOOD, parsed, together

TIMES = GOOD.replace("  number: bigint\n", "  number: bigint\n  ordered_at: timestamp\n  born_on: date\n")


def laid_out(partition_by: str) -> str:
    return TIMES + f"  partition_by: {partition_by}\n"


@pytest.mark.parametrize(
    ("partition_by", "name", "type_"),
    [
        ("country", "country", "STRING"),
        ("{column: country}", "country", "STRING"),
        ("{column: ordered_at, by: hour}", "ordered_at_hour", "STRING"),
        ("{column: ordered_at, by: day}", "ordered_at_day", "DATE"),
        ("{column: born_on, by: month}", "born_on_month", "STRING"),
    ],
)
def test_the_column_by_which_files_are_laid_out_follows_from_the_declaration(partition_by, name, type_):
    file = parsed(laid_out(partition_by))
    assert file.problems == ()
    assert file.spec is not None
    table = tables_of(file.spec).table
    assert (table.delta_partition, table.column(name).type) == ((name,), type_)
    shown = resolved(file, lambda name: table)
    assert name in [column["name"] for column in shown["tables"][2]["columns"]]


def test_show_has_the_short_form_where_it_says_everything():
    for partition_by, shown in (
        ("country", "country"),
        ("{column: born_on, by: day}", {"column": "born_on", "by": "day"}),
    ):
        file = parsed(laid_out(partition_by))
        assert resolved(file, lambda name: pytest.fail(name))["declaration"]["table"]["partition_by"] == shown


@pytest.mark.parametrize(
    ("partition_by", "field", "said", "fix"),
    [
        ("contry", "table.partition_by", "no column `contry`", "did you mean `country`?"),
        ("{column: orderd_at, by: hour}", "table.partition_by.column", "no column `orderd_at`",
        "did you mean `ordered_at`?"),
        ("{column: ordered_at, by: hours}", "table.partition_by.by", "`hours` is not"
                                                                     " known", "did you mean `hour`?"),
        ("{by: hour}", "table.partition_by.column", "`column` is missing", "column"),
        ("{column: ordered_at, every: hour}", "table.partition_by.every", "no field `every`",
        "fields: column, by"),
        ("[country]", "table.partition_by", "should be a mapping", ""),
        ("{column: country, by: day}", "table.partition_by.column", "`country` is STRING, which has no"
                                                                    " day", "TIMESTAMP or DATE"),
        ("{column: born_on, by: hour}", "table.partition_by.by", "which has no hour", "TIMESTAMP"),
    ],
)  # fmt: skip
def test_what_cannot_lay_out_files_is_a_problem(partition_by, field, said, fix):
    text = laid_out(partition_by)
    (problem,) = parsed(text).problems or _checked(text)
    assert problem.field == field
    assert problem.line is not None
    assert text.splitlines()[problem.line - 1].strip().startswith("partition_by")
    assert said in problem.message
    assert fix in problem.fix


def _checked(text: str):
    from etl_assets.pipelines.cross_checks import checked
    from etl_assets_tests.unit.test_pipeline_file import BASE

    return checked([parsed(text)], BASE)[0].problems


def test_a_column_of_the_same_name_is_a_problem():
    text = laid_out("{column: ordered_at, by: day}").replace(
        "  number: bigint\n", "  number: bigint\n  ordered_at_day: date\n"
    )
    (said,) = together(suppliers=text)["suppliers"]
    assert "table.partition_by: the files would be laid out by `ordered_at_day`" in said


def test_python_declares_it_as_yaml_does():
    spec = declared(table={**PEOPLE["table"], "partition_by": "country"})
    assert spec.table.partition_by is not None
    assert spec.table.partition_by.name == "country"
