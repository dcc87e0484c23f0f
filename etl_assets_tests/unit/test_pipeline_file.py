"""Pipeline files: every problem has its line, field and fix; a file never breaks another one, nor shows a
secret.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.cross_checks import checked
from etl_assets.pipelines.dagster_names import RESERVED
from etl_assets.pipelines.environment_references import replace_references
from etl_assets.pipelines.files_spec import FilesSource
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.pipeline_file import PipelineFile, parse_pipeline, read_pipeline_files
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.pipelines.problem import Problem
from etl_assets.pipelines.resolved import resolved
from etl_assets.pipelines.stage import SystemTable
from etl_assets.pipelines.yaml_tree import MAX_BYTES, MAX_VALUES, read_tree

REGIONS = TableContract(
    name="regions",
    description="Regions.",
    columns=(
        Column("code", "STRING", "Code."),
        Column("title", "STRING", "Title.", nullable=True),
    ),
    merge_key=("code",),
)
BASE = Catalog(system_tables=(SystemTable(table=REGIONS, placement=PlacementClass.INGEST),))
GOOD = """\
name: suppliers
source: {type: files, path: "in/*.csv"}
columns:
  number: bigint
  country: {type: string, max_length: 2}
table:
  keys: [number]
"""


def parsed(text: str | bytes, name: str = "suppliers.yaml", **environ: str) -> PipelineFile:
    content = text.encode() if isinstance(text, str) else text
    return parse_pipeline(content, Path(name), environ)


def found(text: str | bytes, **environ: str) -> list[tuple[int | None, str]]:
    """Lines and fields of the problems."""
    return [(problem.line, problem.field) for problem in parsed(text, **environ).problems]


def only(text: str | bytes, **environ: str):
    (problem,) = parsed(text, **environ).problems
    return problem


def declared(name: str, *, table: str | None = None, looks_up: str | None = None) -> str:
    text = GOOD.replace("name: suppliers", f"name: {name}")
    if table:
        text = text.replace("table:", f"table:\n  name: {table}")
    if looks_up:
        mine, key = ("country", "code") if looks_up == "regions" else ("number", "number")
        text += (
            "transforms:\n"
            f"  - {{type: lookup, table: {looks_up}, on: {{{mine}: {key}}}, columns: {{other: {key}}}}}\n"
        )
    return text


def together(**files: str) -> dict[str, list[str]]:
    """Problems of files that are checked together, by file."""
    read = [parsed(text, f"{name}.yaml") for name, text in sorted(files.items())]
    return {
        file.path.stem: [f"{problem.line} {problem.field}: {problem.message}" for problem in file.problems]
        for file in checked(read, BASE)
    }


def test_a_good_file_is_a_declaration():
    file = parsed(GOOD)
    assert file.problems == ()
    assert file.spec is not None
    assert (file.name, file.spec.columns["country"].type) == ("suppliers", "STRING")


def test_all_problems_of_a_file_are_found_at_once_each_with_its_line():
    text = """\
name: Suppliers
ower: [a]
source:
  type: files
  format: jsonl
columns:
  number:
    type: bigint
    at_lest: 1
  Country Code: string
  amount: doubel
transforms:
  - {type: filter, wheer: "x"}
  - {type: fliter, where: "x"}
  - type: expectations
    rules:
      - name: a
        condition: x
        on_violation: dropp
  - {type: python, function: clean}
table:
  write_mode: upsrt
"""
    assert found(text) == [
        (1, "name"),
        (2, "ower"),
        (3, "source.path"),
        (5, "source.format"),
        (9, "columns.number.at_lest"),
        (10, "columns.'Country Code'"),
        (11, "columns.amount.type"),
        (13, "transforms[0].wheer"),
        (13, "transforms[0].where"),
        (14, "transforms[1].type"),
        (19, "transforms[2].rules[0].on_violation"),
        (20, "transforms[3].function"),
        (22, "table.write_mode"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "said", "fix"),
    [
        ("keys:", "kys:", "no field `kys` in table", "did you mean `keys`? fields: name, "),
        ("type: files", "type: file", "`type`: `file` is not known", "did you mean `files`? use one of "),
        ("number: bigint", "number: integer", "not a type", "did you mean `int`?"),
        ("number: bigint", "number: bigimt", "not a type", "did you mean `bigint`?"),
        ("max_length: 2", "max_length: 0", "`0` is wrong: ", "most characters"),
        ("{type: string, max_length: 2}", "{type: bigint, at_least: 1e999999999}", "is wrong", ""),
        ("{type: string, max_length: 2}", "", "`country` has no value", ""),
        ("max_length: 2", "at_least: 2", "rule", "give a rule for this type"),
        ("max_length: 2", 'matches: "("', "pattern", "use ASCII literals"),
        ("keys: [number]", "keys: number", "`number` should be a list", "write `[number]`"),
        ("keys: [number]", "keys: [numbr]", "no column `numbr`", "did you mean `number`?"),
        ("keys: [number]", "write_mode: upsert", "upsert needs keys", "to keep every row: append"),
        ("keys: [number]", "write_mode: replace", "not replaced as a whole", "use upsert, insert"),
        (
            "keys: [number]",
            "keys: [number]\n  apply_as_deletes: x",
            "upsert deletes no rows",
            "apply_changes",
        ),
        (
            "keys: [number]",
            "keys: [number]\n  except_column_list: [cuntry]",
            "no column `cuntry`",
            "`country`?",
        ),
        ("keys: [number]", "keys: [number]\n  except_column_list: [number]", "needed in the table", ""),
        ("keys: [number]", "write_mode: apply_changes", "apply_changes needs keys", "append"),
        ("keys: [number]", "keys: [number]\n  write_mode: apply_change", "not known", "`apply_changes`?"),
        ('path: "in/*.csv"', "path: 12", "`12` should be a text", 'in quotes: `"12"`'),
        ("name: suppliers", "name: My Suppliers", "not a name", "such as `my_suppliers`"),
    ],
)
def test_a_problem_names_the_value_and_the_fix(before, after, said, fix):
    assert before in GOOD
    problem = only(GOOD.replace(before, after))
    assert said in problem.message
    assert fix in problem.fix
    assert problem.line is not None


def test_a_table_that_applies_changes_has_a_table_of_tombstones_whose_name_is_taken():
    text = GOOD.replace("keys: [number]", "keys: [number]\n  write_mode: apply_changes")
    file = parsed(text)
    found = resolved(file, BASE.table)["tables"]
    assert [each["name"] for each in found][-1] == "suppliers_tombstones"
    assert [column["name"] for column in found[-1]["columns"]] == [
        "_is_truncate",
        "number",
        "_offset",
        "_batch_id",
    ]
    problems = together(a=text, b=declared("suppliers_tombstones"))
    assert problems["a"] == []
    assert problems["b"] == ["1 name: its table `suppliers_tombstones` is already a table of a.yaml"]


def test_types_may_be_written_with_spaces_and_in_any_case():
    file = parsed(GOOD.replace("number: bigint", 'number: "Decimal(18, 2)"\n  parts: "struct<a: int>"'))
    assert file.spec is not None, file.problems
    assert [column.type for column in file.spec.columns.values()][:2] == ["DECIMAL(18,2)", "STRUCT<a: INT>"]


def test_words_that_old_yaml_takes_for_booleans_and_days_are_texts():
    text = GOOD + (
        "transforms:\n  - type: lookup\n    table: regions\n    on: {country: code}\n    columns: {yes:"
        " title}\n"
        "description: 2026-01-01\n"
    )
    file = parsed(text)
    assert file.problems == ()
    assert file.spec is not None
    assert file.spec.description == "2026-01-01"


def test_a_reference_is_replaced_by_the_variable_in_the_source_and_nowhere_else():
    text = (
        GOOD.replace('"in/*.csv"', '"${ROOT}/{day}/*.csv", null_value: "$${day}"')
        + 'description: "${ROOT}"\n'
    )
    file = parsed(text, ROOT="/data")
    assert file.spec is not None
    assert isinstance(file.spec.source, FilesSource)
    assert (file.spec.source.path, file.spec.source.null_value) == ("/data/{day}/*.csv", "${day}")
    assert file.spec.description == "${ROOT}"


@pytest.mark.parametrize("environ", [{}, {"ROOT": ""}])
def test_a_variable_that_is_not_set_is_a_problem_that_names_it(environ):
    problem = only(GOOD.replace("in/*.csv", "${ROOT}/*.csv"), **environ)
    assert (problem.line, problem.field) == (2, "source.path")
    assert "ROOT is not set" in problem.message


def test_what_is_no_reference_is_a_problem():
    assert "names no environment variable" in only(GOOD.replace("in/*.csv", "${a b}")).message


def test_a_value_from_the_environment_is_never_shown():
    text = GOOD.replace("files,", "'${SECRET}',").replace("max_length: 2", "max_length: 0")
    text = text.replace("path:", "settle_seconds: '${SECRET}', delimiter: '${SECRET}', path:")
    file = parsed(text, SECRET="hunter2-hunter2")
    assert len(file.problems) >= 2
    assert "hunter2" not in repr(file)
    shown = parsed(GOOD.replace("in/*.csv", "${SECRET}/*.csv"), SECRET="hunter2-hunter2")
    shown_as = json.dumps(resolved(shown, lambda name: REGIONS))
    assert "hunter2" not in shown_as
    assert "${SECRET}/*.csv" in shown_as


def test_neither_a_short_value_nor_a_near_miss_of_one_is_shown():
    text = GOOD.replace("files,", "files, format: '${SECRET}',")
    for secret in ("q7", "csw"):
        problem = only(text, SECRET=secret)
        assert problem.message == "`format` is not known"
        assert problem.fix == "use one of `json_lines`, `csv`, `parquet`"


def test_a_value_that_another_message_repeats_is_blacked_out():
    replaced = replace_references(read_tree(b"source: {a: '${SECRET}'}"), {"SECRET": "hunter2"}.get)
    assert replaced.without_values(Problem(1, "a", "no hunter2", "hunter2!")) == Problem(1, "a", "no …", "…!")


def test_of_a_block_of_unknown_type_only_the_type_is_a_problem():
    assert found(GOOD.replace('type: files, path: "in/*.csv"', "type: queue, topic: a")) == [
        (2, "source.type")
    ]


def test_credentials_in_a_value_are_not_shown():
    problem = only(GOOD.replace("files,", "'postgres://user:hunter2@host/db',"))
    assert "hunter2" not in problem.message


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(8)
)


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (BOMB, None, f"more than {MAX_VALUES:,} values"),
        ("a: &a {<<: [*a, *a]}\n", 1, ""),
        ("a: &a [*a]\n", 1, "inside what it repeats"),
        ("[" * 5_000, 1, "deep"),
        ("x: " + "y" * MAX_BYTES, None, "bytes"),
        ("- a\n", None, "no mapping"),
        ("", None, "empty"),
        ("# nothing\n", None, "empty"),
        ("name: a\n\tsource: b\n", 2, "a tab"),
        ("name: a\nname: b\n", 2, "stands twice, in lines 1 and 2"),
        (b"name: a\nx: \xff\n", 2, "not UTF-8"),
        ("name: a\nx: \x00\n", 2, "U+0000"),
        ("name: a\n---\nname: b\n", 2, "second document"),
        ("name: !!python/object/apply:os.system [true]\n", 1, "a tag"),
        ("? [a]\n: b\n", 1, "where a field's name"),
        ('name: "a\n', 2, "not closed"),
        ("x: *nothing\n", 1, "`*name` without"),
        (GOOD + 'description: "\\ud800"\n', 8, "half a character"),
        (GOOD + "".join(f"k{n}: 1\n" for n in range(300)), None, "101 more problems"),
    ],
)
def test_hostile_yaml_is_a_problem(content, line, said):
    problem = next(each for each in parsed(content).problems if said in each.message)
    assert line is None or problem.line == line
    assert parsed(content).spec is None


def test_a_huge_number_and_deep_types_are_problems():
    assert only(GOOD.replace("max_length: 2", f"max_length: {'9' * 5_000}")).line == 5
    assert only(GOOD.replace("number: bigint", f'number: "{"array<" * 5_000}"')).line == 4


def test_what_a_file_says_does_not_steer_the_terminal():
    problem = only(GOOD + '"\\e[2Jx\\ny": 1\n')
    assert (problem.field + problem.message).isprintable()


def test_files_are_read_in_order_and_others_are_ignored(tmp_path):
    for name in ("b.yaml", "a.yml"):
        (tmp_path / name).write_text(GOOD.replace("suppliers", name[0]))
    for name in (".schema.json", ".#b.yaml", "c.yaml~", "notes.txt"):
        (tmp_path / name).write_text("x")
    assert [file.name for file in read_pipeline_files(tmp_path)] == ["a", "b"]
    assert read_pipeline_files(tmp_path / "none") == ()


def test_what_cannot_be_read_is_a_problem_of_its_file_only(tmp_path):
    outside = tmp_path / "outside.yaml"
    outside.write_text(GOOD)
    folder = tmp_path / "pipelines"
    (folder / "folder.yaml").mkdir(parents=True)
    (folder / "gone.yaml").symlink_to("nowhere")
    (folder / "out.yaml").symlink_to(outside)
    (folder / "good.yaml").write_text(GOOD)
    (folder / "linked.yaml").symlink_to("good.yaml")
    os.mkfifo(folder / "pipe.yaml")
    files = {file.path.name: file for file in read_pipeline_files(folder)}
    assert files.pop("good.yaml").problems == files.pop("linked.yaml").problems == ()
    assert {name: len(file.problems) for name, file in files.items()} == {
        "folder.yaml": 1,
        "gone.yaml": 1,
        "out.yaml": 1,
        "pipe.yaml": 1,
    }
    assert "out of the folder" in files["out.yaml"].problems[0].message


def test_of_two_files_with_one_name_the_later_has_the_problem():
    problems = together(a=declared("one"), b=declared("one"), c=declared("two"))
    assert problems == {"a": [], "b": ["1 name: the name `one` is taken by a.yaml"], "c": []}


@pytest.mark.parametrize("name", ["one", "one_rejects", "one_source", "one_source_rejects", "regions"])
def test_a_table_that_another_has_is_a_problem_of_the_later_file(name):
    problems = together(a=declared("one"), b=declared("two", table=name))
    assert problems["a"] == []
    (problem,) = problems["b"]
    assert problem.startswith("7 table.name: its table")
    assert f"`{name}`" in problem


def test_the_tables_of_one_pipeline_differ():
    (problem,) = together(a=declared("one", table="one_source"))["a"]
    assert problem.startswith("7 table.name")


@pytest.mark.parametrize("name", ["class", "type", "input", "context", "failure_domains"])
def test_a_name_that_dagster_keeps_for_itself_is_a_problem(name):
    (problem,) = together(a=declared(name))["a"]
    assert problem.startswith("1 name: ")
    (problem,) = together(a=declared("one", table=name))["a"]
    assert problem.startswith("7 table.name: ")
    assert together(a=declared(name, table="one"))["a"] == []


def test_dagster_keeps_no_other_names_for_itself():
    from dagster._core.definitions.utils import DISALLOWED_NAMES

    assert RESERVED == DISALLOWED_NAMES


def test_the_sensor_of_a_built_in_pipeline_keeps_its_name():
    base = Catalog(pipelines=(Pipeline(name="orders", sensor="landing_files"),))
    (file,) = checked([parsed(declared("landing"))], base)
    assert [(problem.line, problem.field) for problem in file.problems] == [(1, "name")]


def test_a_table_is_not_laid_out_as_those_by_day_of_arrival():
    text = GOOD.replace("number: bigint", "number: bigint\n  partition_date: date")
    assert found(text) == []
    text += "  partition_by: partition_date\n"
    assert [field for _, field in found(text)] == ["table"]


@pytest.mark.parametrize("owner", ["me", "team:", "a@b", "", ".a@example.org"])
def test_an_owner_that_dagster_refuses_is_a_problem(owner):
    text = GOOD.replace("columns:", f'owners: [team:data, "{owner}"]\ncolumns:')
    assert found(text) == [(3, "owners[1]")]
    assert "team:data-platform" in only(text).fix


def test_a_broken_file_takes_no_name():
    broken = declared("one").replace("bigint", "nope")
    looks = declared("one", looks_up="nowhere")
    problems = together(a=broken, b=looks, c=declared("one"))
    assert [len(problems[name]) for name in "abc"] == [1, 1, 0]


def test_a_lookup_finds_built_in_tables_and_those_of_other_files_in_any_order():
    problems = together(
        a=declared("one", looks_up="two"),
        b=declared("two", looks_up="three"),
        c=declared("three", looks_up="regions"),
    )
    assert problems == {"a": [], "b": [], "c": []}


def test_a_lookup_of_a_missing_table_names_those_that_are_near():
    files = checked([parsed(declared("one", looks_up="region"))], BASE)
    (problem,) = files[0].problems
    assert (problem.line, problem.field) == (9, "transforms[0].table")
    assert "there is no table `region`" in problem.message
    assert "did you mean `regions`?" in problem.fix


def test_lookups_in_a_circle_are_problems_of_those_in_it():
    problems = together(
        a=declared("one", looks_up="two"),
        b=declared("two", looks_up="three"),
        c=declared("three", looks_up="two"),
        d=declared("four"),
    )
    assert "has problems" in problems["a"][0]
    assert "circle: two → three → two" in problems["b"][0]
    assert "circle: three → two → three" in problems["c"][0]
    assert problems["d"] == []


def test_a_lookup_of_a_broken_pipeline_waits_for_it():
    problems = together(a=declared("one", looks_up="two"), b=declared("two").replace("bigint", "nope"))
    assert "the pipeline two, which has problems" in problems["a"][0]


def test_columns_without_an_order_are_no_keys():
    text = GOOD.replace("number: bigint", '"number": "array<bigint>"')
    (file,) = checked([parsed(text)], BASE)
    (problem,) = file.problems
    assert (problem.line, problem.field) == (7, "table.keys[0]")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            "{type: lookup, table: regions, on: {county: code}, columns: {t: title}}",
            "transforms[0].on.county",
        ),
        (
            "{type: lookup, table: regions, on: {country: cod}, columns: {t: title}}",
            "transforms[0].on.country",
        ),
        (
            "{type: lookup, table: regions, on: {number: code}, columns: {t: title}}",
            "transforms[0].on.number",
        ),
        (
            "{type: lookup, table: regions, on: {country: code}, columns: {t: titel}}",
            "transforms[0].columns.t",
        ),
    ],
)
def test_columns_of_a_lookup_are_checked_with_their_line(text, place):
    (file,) = checked([parsed(f"{GOOD}transforms:\n  - {text}\n")], BASE)
    (problem,) = file.problems
    assert (problem.line, problem.field) == (9, place)


@pytest.mark.parametrize(
    ("path", "said", "fix"),
    [
        ("in/suppliers", "names no files", "such as `landing/suppliers/*.csv`"),
        ("in/", "names no files", "such as `landing/suppliers/*.csv`"),
        ("in/{day}", "`{day}` is a folder", "landing/{day}/*.csv"),
        ("in/{day}.csv", "`{day}` is a folder", "landing/{day}/*.csv"),
        ("{day}/in/*.csv", "just before the file name", "landing/{day}/*.csv"),
        ("{day}/{day}/*.csv", "just before the file name", "landing/{day}/*.csv"),
        ("in/day-{day}/*.csv", "just before the file name", "landing/{day}/*.csv"),
        ("in/{date}/*.csv", "braces have no meaning", "one pattern"),
        ("in/*.{csv,tsv}", "braces have no meaning", "one pattern"),
        ("in/*/a.csv", "in the file name only", "one folder"),
        ("in/**/*.csv", "in the file name only", "one folder"),
        ("in/[ab]/*.csv", "in the file name only", "one folder"),
        ("../in/*.csv", "`..` is not allowed", "the folder itself"),
        ("in/../*.csv", "`..` is not allowed", "the folder itself"),
        ("~root/*.csv", "another user's folder", "from `/`"),
        ("s3://bucket/*.csv", "an address", "a folder of this machine"),
        ("in/.*.csv", "unfinished files", "neither begin"),
        ("in/*.csv.tmp", "unfinished files", "neither begin"),
        ("in/*.csv.zst", "by gzip only", ".gz"),
    ],
)
def test_a_path_that_could_read_nothing_or_other_files_is_a_problem_with_its_fix(path, said, fix):
    problem = only(GOOD.replace("in/*.csv", path))
    assert (problem.line, problem.field) == (2, "source.path")
    assert said in problem.message
    assert f"`{path}`" in problem.message
    assert fix in problem.fix


@pytest.mark.parametrize(
    "path", ["*.csv", "/data/a.csv", "~/in/*.TSV.GZ", "in/{day}/a-[0-9]?.jsonl", "./in/*.parquet"]
)
def test_a_path_that_names_files_of_a_known_format_is_good(path):
    assert parsed(GOOD.replace("in/*.csv", path)).problems == ()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('path: "in/*.txt"', "shows no format"),
        ('path: "in/*"', "shows no format"),
        ('path: "in/*.parquet.gz"', "Parquet files are not decompressed"),
        ('format: parquet, path: "in/*.gz"', "Parquet files are not decompressed"),
    ],
)
def test_a_file_name_of_no_format_is_a_problem_where_none_is_declared(source, said):
    problem = only(GOOD.replace('path: "in/*.csv"', source))
    assert (problem.line, problem.field) == (2, "source")
    assert said in problem.message
    assert parsed(GOOD.replace('path: "in/*.csv"', 'format: csv, path: "in/*.txt"')).problems == ()


@pytest.mark.parametrize(
    ("path", "more", "delimiter"),
    [("a.tsv", "", "\t"), ("a.TSV.gz", "", "\t"), ("a.csv", "", ","), ("a.tsv", "delimiter: ';',", ";")],
)
def test_values_of_a_tsv_file_are_separated_by_tabs(path, more, delimiter):
    spec = parsed(GOOD.replace('path: "in/*.csv"', f'{more} path: "{path}"')).spec
    assert spec is not None
    assert isinstance(spec.source, FilesSource)
    assert spec.source.value_delimiter == delimiter


@pytest.mark.parametrize("value", ["'\"'", '"\\n"', "'ab'", "'§'"])
def test_a_delimiter_that_cannot_separate_values_is_a_problem(value):
    assert only(GOOD.replace("path:", f"delimiter: {value}, path:")).field == "source.delimiter"


@pytest.mark.parametrize("value", ["[a, a]", '[""]'])
def test_an_id_of_one_field_twice_or_of_none_is_a_problem(value):
    assert only(GOOD.replace("path:", f"id: {value}, path:")).field == "source.id"


def test_a_path_from_the_environment_is_not_shown_when_it_is_wrong():
    problem = only(GOOD.replace("in/*.csv", "${SECRET}"), SECRET="hunter2")
    assert "names no files" in problem.message
    assert "hunter2" not in repr(problem)


@pytest.mark.parametrize("field", ["delimiter", "format"])
def test_a_field_without_a_value_is_one_that_is_left_out(field):
    assert parsed(GOOD.replace("type: files", f"type: files, {field}: ")).problems == ()
