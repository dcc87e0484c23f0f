"""`etl-assets pipelines`."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from etl_assets.cli import transform_problems
from etl_assets.cli.pipelines import pipelines
from etl_assets.errors import EtlAssetsError, InputError, NoInstallation, SettingsError
from etl_assets.pipelines.json_schema import schema_text
from etl_assets.settings import load_settings

MODULE = """\
print("imported")
def clean(frame):
    return frame
limit = 3
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path / "home"))
    # What Spark says is for spark/test_validate.py.
    monkeypatch.setattr(transform_problems, "with_transform_problems", lambda settings, files, of: [*files])
    return tmp_path / "home"


@pytest.fixture
def declare(home):
    """Write a pipeline file."""

    def declare(name: str, more: str = "", *, source: str = "files") -> None:
        (home / "pipelines").mkdir(parents=True, exist_ok=True)
        (home / "pipelines" / f"{name}.yaml").write_text(
            f"name: {name}\nsource: {{type: {source}, path: a.csv}}\ncolumns: {{id: bigint}}\ntable: {{keys:"
            f" [id]}}\n{more}"
        )

    return declare


def run(*arguments: object, exit_code: int = 0):
    result = CliRunner().invoke(pipelines, [str(each) for each in arguments])
    assert result.exit_code == exit_code, (result.output, result.exception)
    return json.loads(result.stdout) if "--json" in arguments else result.output


def refused(kind: type[EtlAssetsError], *arguments: object) -> EtlAssetsError:
    result = CliRunner().invoke(pipelines, [str(each) for each in arguments])
    assert type(result.exception) is kind, (result.output, result.exception)
    return result.exception


def columns(home, name: str = "shop") -> dict:
    content = yaml.safe_load((home / "pipelines" / f"{name}.yaml").read_text("utf-8"))
    return content["columns"]


def test_a_new_file_is_valid_and_names_the_schema_beside_it(home):
    run("new", "suppliers")
    run("validate", "suppliers")
    folder = home / "pipelines"
    assert (
        (folder / "suppliers.yaml").read_text().startswith("# yaml-language-server: $schema=.schema.json\n")
    )
    assert (folder / ".schema.json").read_text("utf-8") == schema_text() == run("schema")
    assert sorted(each.name for each in folder.iterdir()) == [".schema.json", "suppliers.yaml"]


def test_a_file_that_exists_is_not_touched(home, declare):
    declare("other")
    path = (home / "pipelines" / "other.yaml").rename(home / "pipelines" / "suppliers.yaml")
    before = path.read_text()
    assert "exists already" in refused(SettingsError, "new", "suppliers").message
    assert path.read_text() == before


@pytest.mark.parametrize("name", ["../x", "A b", "/etc/x", "x.yaml", "customers", ""])
def test_no_file_is_written_for_a_name_that_cannot_be_one(home, name):
    refused(SettingsError, "new", name)
    assert not home.exists()


def test_columns_are_taken_from_a_csv_file(home, tmp_path):
    folder = tmp_path / "in" / "2026-01-02"
    folder.mkdir(parents=True)
    with gzip.open(folder / "a.csv.gz", "wt", encoding="utf-8-sig") as file:
        file.write(
            "Shop ID;Größe;amount;since;seen;local;zip;ok;yes;empty\n"
            '1;"a;b";1.5;2026-01-01;2026-01-01T00:00:00Z;2026-01-01T00:00:00;01234;true;;\n'
            "2;c;20;2026-01-02;2026-01-01T00:00:00+01:00;2026-01-01T00:00:00;11234;false;x;\n"
        )
    run("new", "shop", "--from", folder / "a.csv.gz")
    assert columns(home) == {
        "shop_id": {"type": "bigint", "from": "Shop ID", "required": True},
        "grosse": {"type": "string", "from": "Größe"},
        "amount": "decimal(18,2)",
        "since": "date",
        "seen": "timestamp",
        "local": "string",
        "zip": "string",
        "ok": "boolean",
        "yes": "string",
        "empty": "string",
    }
    (found,) = run("validate", "--json")
    assert found["state"] == "ok"
    shown = run("show", "shop", "--json")["declaration"]
    assert shown["source"]["path"] == str(tmp_path / "in" / "{day}" / "*.csv.gz")
    assert shown["source"]["delimiter"] == ";"
    assert shown["table"]["keys"] == ["shop_id"]


def test_columns_are_taken_from_json_lines(home, tmp_path):
    lines = [
        {"orderId": "a", "n": 1, "x": 1.25, "big": 2**70, "ok": True, "nested": {"a": 1}, "mixed": 1},
        {"orderId": "b", "n": 2, "x": 3, "big": 1, "ok": None, "mixed": "a", "late": "x: #"},
    ]
    path = tmp_path / "o.jsonl"
    path.write_text("\n".join([*map(json.dumps, lines), "{", "[1]", '"a"']))
    run("new", "shop", "--from", path)
    run("validate")
    assert columns(home) == {
        "order_id": {"type": "string", "from": "orderId", "required": True},
        "n": "bigint",
        "x": "decimal(18,2)",
        "big": "decimal(38,2)",
        "ok": "boolean",
        "mixed": "string",
        "late": "string",
    }


def test_columns_are_taken_from_parquet(home, tmp_path):
    path = tmp_path / "o.parquet"
    pq.write_table(
        pa.table(
            {
                "code": ["a", "b"],
                "price": pa.array([Decimal("1.250"), None], pa.decimal128(10, 3)),
                "share": [0.5, 1.0],
                "n": pa.array([1, 2], pa.int16()),
                "at": pa.array([0, 1], pa.timestamp("us", "UTC")),
                "raw": [b"a", b"b"],
                "tags": [["a"], []],
            }
        ),
        path,
    )
    run("new", "shop", "--from", path)
    run("validate")
    assert columns(home) == {
        "code": {"type": "string", "required": True},
        "price": "decimal(18,3)",
        "share": "decimal(18,2)",
        "n": "bigint",
        "at": "timestamp",
        "raw": "string",
    }


def test_odd_field_names_become_names_of_columns(home, tmp_path):
    fields = ["", "1st", "a b", "A-B", "_offset", "on", "x" * 200, "tab\tquote'\"#: {}", "😀", "null"]
    path = tmp_path / "o.jsonl"
    path.write_text(json.dumps(dict.fromkeys(fields, "v")))
    run("new", "shop", "--from", path)
    file = run("show", "shop", "--json")["declaration"]["columns"]
    assert [column["from"] or name for name, column in file.items()] == fields[1:]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b""),
        ("a.csv", b"a,b\n"),
        ("a.csv", b"a\n\xff\n"),
        ("a.csv", b"a,a\n1,2\n"),
        ("a.csv", b"a,\n1,2\n"),
        ("a.csv.gz", b"a\n1\n"),
        ("a.jsonl", b"[1]\n"),
        ("a.jsonl", b'{"a": {"b": 1}}\n'),
        ("a.parquet", b"PAR1"),
        ("a.parquet.gz", b""),
        ("a.txt", b"a\n1\n"),
    ],
)
def test_a_file_without_columns_makes_no_pipeline(home, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    refused(InputError, "new", "shop", "--from", tmp_path / name)
    assert not home.exists()


def test_the_list_has_good_and_broken_files(declare):
    declare("one")
    declare("two", source="file")
    rows = run("list", "--json")
    assert [(row["name"], row["source"], row["table"], row["state"]) for row in rows] == [
        ("one", "files", "one", "ok"),
        ("two", None, None, "broken"),
    ]
    assert "broken" in run("list")


def test_a_pipeline_is_shown_with_its_defaults_and_tables_and_without_secrets(declare, monkeypatch, home):
    declare("one")
    path = home / "pipelines" / "one.yaml"
    path.write_text(path.read_text().replace("path: a.csv", "path: '${ROOT}/a.csv'"))
    monkeypatch.setenv("ROOT", "hunter2")
    shown = run("show", "one", "--json")
    assert shown["declaration"]["source"]["path"] == "${ROOT}/a.csv"
    assert shown["declaration"]["source"]["settle_seconds"] == 2.0
    assert [table["name"] for table in shown["tables"]] == [
        "one_source",
        "one_source_rejects",
        "one",
        "one_rejects",
    ]
    text = run("show", "one")
    assert "settle_seconds: 2.0" in text
    assert "  id: bigint, required" in text
    assert "hunter2" not in text + json.dumps(shown)


def test_a_broken_pipeline_is_shown_with_its_problems(declare):
    declare("one", source="file")
    assert "one.yaml:2:source.type: " in run("show", "one", exit_code=1)


def test_validation_prints_file_line_field_and_fix(declare):
    declare("good")
    declare("one", "tabel: 1\n", source="file")
    text = run("validate", exit_code=1)
    assert "good.yaml: ok" in text
    assert "one.yaml:2:source.type: `type`: `file` is not known\n  fix: did you mean `files`?" in text
    assert "one.yaml:5:tabel: " in text
    run("validate", "good")
    (found,) = run("validate", "one", "--json", exit_code=1)
    assert [(each["line"], each["field"]) for each in found["problems"]] == [(2, "source.type"), (5, "tabel")]


def test_a_file_from_elsewhere_needs_no_installation(home, tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text(
        "name: one\nsource: {type: files, path: a.csv}\ncolumns: {id: bigint}\ntable: {keys: [id]}\n"
    )
    run("validate", path)
    path.write_text(
        "name: customers\nsource: {type: files, path: a.csv}\ncolumns: {id: bigint}\ntable: {keys: [id]}\n"
    )
    assert "one.yaml:1:name: its table `customers` is already a table of the platform" in run(
        "validate", path, exit_code=1
    )
    assert not home.exists()


def test_a_file_from_elsewhere_is_checked_in_place_of_the_one_with_its_name(declare, home, tmp_path):
    declare("one")
    declare("two")
    (tmp_path / "one.yaml").write_text((home / "pipelines" / "one.yaml").read_text())
    run("validate", tmp_path / "one.yaml")
    (tmp_path / "third.yaml").write_text((home / "pipelines" / "one.yaml").read_text())
    assert "is taken by one.yaml" in run("validate", tmp_path / "third.yaml", exit_code=1)


@pytest.mark.parametrize("named", ["nope", "./nope.yaml", "on"])
def test_what_is_not_there_is_a_wrong_call(declare, named):
    declare("one")
    run("validate", named, exit_code=2)
    run("show", named, exit_code=2)


def test_functions_are_imported_unless_told_otherwise(declare, tmp_path, monkeypatch):
    (tmp_path / "shop_module.py").write_text(MODULE)
    (tmp_path / "broken_module.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = [
        "shop_module:clean",
        "shop_module:claen",
        "shop_module:limit",
        "nowhere.at_all:x",
        "broken_module:x",
    ]
    declare("one", "transforms:\n" + "".join(f"  - {{type: python, function: '{name}'}}\n" for name in names))
    (found,) = run("validate", "--json", exit_code=1)
    assert [(each["line"], each["field"]) for each in found["problems"]] == [
        (7, "transforms[1].function"),
        (8, "transforms[2].function"),
        (9, "transforms[3].function"),
        (10, "transforms[4].function"),
    ]
    messages = [each["message"] + each["fix"] for each in found["problems"]]
    assert "did you mean `clean`?" in messages[0]
    assert "PYTHONPATH" in messages[2]
    assert "SystemExit" in messages[3]
    run("validate", "--no-import")


def test_functions_of_modules_that_are_not_listed_are_neither_used_nor_imported(
    declare, home, tmp_path, monkeypatch
):
    (tmp_path / "other_module.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, module in (("one", "other_module"), ("two", "math")):
        declare(name, f"transforms:\n  - {{type: python, function: '{module}:floor'}}\n")
    (home / "platform.yaml").write_text("pipelines: {python_modules: [math]}\n")
    found = {each["name"]: each["problems"] for each in run("validate", "--json", exit_code=1)}
    assert found["two"] == []
    (problem,) = found["one"]
    assert problem["field"] == "transforms[0].function"
    assert problem["message"] == "transforms may not name functions of the module `other_module`"
    assert problem["fix"] == "allowed: math (`pipelines.python_modules` of the platform file)"
    catalog = load_settings().catalog()
    assert "two" in catalog.names
    assert "one" not in catalog.names


@pytest.mark.parametrize("command", ["list", "validate"])
def test_looking_makes_no_installation(home, command):
    refused(NoInstallation, command)
    assert not home.exists()


@pytest.mark.parametrize("arguments", [("list",), ("validate",), ("show", "shop"), ("new", "shop")])
def test_a_folder_that_cannot_be_listed_is_not_one_without_pipelines(home, arguments):
    home.mkdir()
    (home / "platform.yaml").write_text("")
    (home / "pipelines").write_text("")
    error = refused(SettingsError, *arguments)
    assert error.message == f"{home}/pipelines cannot be listed: Not a directory"


def test_connections_and_what_they_allow_are_checked_where_there_is_a_platform_file(home, declare, tmp_path):
    declare("films", "sinks: [{type: kafka, connection: events, topic: marts.films}]\n")
    file = home / "pipelines" / "films.yaml"
    platform = "connections: {events: {type: kafka, bootstrap_servers: ['a:9092'], write: [others.*]}}"
    (home / "platform.yaml").write_text(platform)
    said = run("validate", "--no-connect", exit_code=1)
    assert (
        "films.yaml:5:sinks[0].topic: the connection `events` does not allow to write `marts.films`" in said
    )
    assert run("list", "--json")[0]["state"] != "ok"
    (home / "platform.yaml").write_text(platform.replace("others", "marts"))
    assert run("validate", "--no-connect") == f"{file}: ok\n"
    (home / "platform.yaml").write_text("connections: {}")
    assert "no connection `events`" in run("validate", "--no-connect", exit_code=1)
    # A file by itself, such as in the repository of who declares it.
    elsewhere = file.rename(tmp_path / "films.yaml")
    (home / "platform.yaml").unlink()
    assert run("validate", "--no-connect", elsewhere) == f"{elsewhere}: ok\n"
