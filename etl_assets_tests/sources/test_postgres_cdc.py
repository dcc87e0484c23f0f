"""A declared pipeline that follows a table of PostgreSQL: copy, log, positions, and what dies in between."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from etl_assets.cli.main import cli
from etl_assets.errors import SourceLost, SourceRefused, SourceSchemaChanged
from etl_assets.failpoints import Failpoint
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets_tests.servers import needs_postgres
from etl_assets_tests.sources.followed import COLUMNS, Followed
from etl_assets_tests.sources.topics import REJECTS, SOURCE


@pytest.fixture
def films(postgres_server, tmp_path) -> Iterator[Followed]:
    found = Followed.create(postgres_server, tmp_path)
    yield found
    found.close()


def add(films: Followed, first: int, last: int) -> None:
    films.execute(f"INSERT INTO film SELECT n, 'film ' || n, 'PG' FROM generate_series({first}, {last}) n")


def test_a_table_is_copied_and_then_followed(films):
    add(films, 1, 5)
    films.ingest()
    assert films.held() == films.films()
    assert films.ingest().commits == 0
    films.execute(
        "INSERT INTO film VALUES (6, 'six', NULL)",
        "UPDATE film SET title = 'two' WHERE film_id = 2",
        "DELETE FROM film WHERE film_id = 3",
        "UPDATE film SET film_id = 40 WHERE film_id = 4",
        "BEGIN; DELETE FROM film WHERE film_id = 5; INSERT INTO film VALUES (5, 'again', 'R'); COMMIT",
        "BEGIN; INSERT INTO film VALUES (99, 'never', 'R'); ROLLBACK",
    )
    films.ingest()
    assert films.held() == films.films()
    assert 99 not in {each["film_id"] for each in films.records()}
    films.execute("TRUNCATE film")
    add(films, 7, 8)
    films.ingest()
    assert films.held() == films.films() == {7: ("film 7", "PG"), 8: ("film 8", "PG")}
    assert len(films.ids()) == len(set(films.ids()))
    assert films.pipeline.positions["log"]["lsn"] == films.confirmed()
    assert not films.pipeline.rejected()


def test_texts_of_any_form_are_copied_as_the_log_has_them(films):
    odd = [
        "",
        "NULL",
        "\\N",
        "\\.",
        "a,b",
        'quoted "text"',
        '"',
        "two\nlines",
        "a\r\nb",
        "\r",
        "\t\\",
        " ",
        "\x01\u2028😀",
    ]
    for number, text in enumerate([None, *odd]):
        films.session.execute("INSERT INTO film VALUES (%s, %s, NULL)", [number, text])
    films.ingest()
    assert films.held() == films.films()
    copied = [each["title"] for each in films.records()]
    films.execute("UPDATE film SET rating = 'R'")
    films.ingest()
    assert films.held() == films.films()
    assert copied == [each["title"] for each in films.records() if each["rating"] == "R"] == [None, *odd]


@pytest.mark.kill
@pytest.mark.parametrize(
    "failpoint",
    [
        f"{Failpoint.STAGE_AFTER_WRITE}@{SOURCE}",
        pytest.param(f"{Failpoint.TABLE_BEFORE_COMMIT}@{SOURCE}", marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_DURING_COMMIT}@{SOURCE}", marks=pytest.mark.full),
        f"{Failpoint.TABLE_AFTER_COMMIT}@{SOURCE}",
        pytest.param(f"{Failpoint.TABLE_AFTER_SYNC}@{SOURCE}", marks=pytest.mark.full),
        Failpoint.SOURCE_BEFORE_CONFIRM.value,
        pytest.param(Failpoint.SOURCE_AFTER_CONFIRM.value, marks=pytest.mark.full),
    ],
)
def test_a_process_killed_in_the_copy_and_in_the_log_loses_and_doubles_nothing(failpoint, films):
    films.declare(max_batch_records=2)
    add(films, 1, 5)
    films.ingest_and_die(failpoint)
    films.execute(
        "UPDATE film SET title = 'one' WHERE film_id = 1",
        "DELETE FROM film WHERE film_id = 2",
        "UPDATE film SET film_id = 0 WHERE film_id = 4",
        "UPDATE film SET film_id = 9 WHERE film_id = 1",
        "INSERT INTO film VALUES (6, 'six', 'R')",
    )
    films.ingest()
    assert films.held() == films.films()
    films.execute(
        "UPDATE film SET title = 'nine' WHERE film_id = 9",
        "DELETE FROM film WHERE film_id = 0",
        "TRUNCATE film",
        "INSERT INTO film VALUES (2, 'two', 'R'), (3, 'three', 'R')",
    )
    films.ingest_and_die(failpoint)
    add(films, 20, 22)
    films.ingest()
    assert films.held() == films.films()
    assert len(films.ids()) == len(set(films.ids()))
    assert not films.pipeline.rejected()
    assert films.ingest().commits == 0


@pytest.mark.kill
def test_rejects_of_a_killed_process_count_once(films):
    films.declare(max_record_bytes=1_024)
    add(films, 1, 2)
    films.ingest()
    films.execute("UPDATE film SET title = repeat('x', 2000) WHERE film_id = 1")
    add(films, 3, 3)
    films.ingest_and_die(f"{Failpoint.TABLE_AFTER_COMMIT}@{REJECTS}")
    films.ingest()
    assert [(row["outcome"], row["reason"]) for row in films.pipeline.rejected()] == [
        ("rejected", "RecordTooLarge")
    ]
    assert 3 in films.held()


def test_a_transaction_is_never_divided_and_batches_are_bounded(films):
    films.declare(max_batch_records=3)
    films.ingest()
    films.execute("BEGIN", "INSERT INTO film SELECT n, 'a', 'R' FROM generate_series(1, 7) n", "COMMIT")
    for number in range(10, 20):
        add(films, number, number)
    report = films.ingest()
    assert films.held() == films.films()
    assert report.commits == 5  # 7 changes, 3, 3, 3 and 1
    assert len(films.ids()) == len(set(films.ids()))


def test_what_the_server_sends_again_is_left_out(films):
    films.declare(max_batch_records=1)
    films.ingest()
    add(films, 1, 1)
    # The slot stays where it is, as behind a server that lost its last checkpoint.
    for failpoint in (Failpoint.SOURCE_BEFORE_CONFIRM, Failpoint.SOURCE_BEFORE_CONFIRM):
        before = films.confirmed()
        films.ingest_and_die(failpoint.value)
        assert films.confirmed() == before
        films.execute("INSERT INTO film VALUES (2, 'film 2', 'PG') ON CONFLICT DO NOTHING")
    films.ingest()
    assert films.held() == films.films()
    assert len(films.ids()) == len(set(films.ids())) == 2


def test_a_slot_that_is_gone_is_an_error_until_the_table_may_be_copied_again(films):
    add(films, 1, 3)
    films.ingest()
    films.drop_slot()
    films.execute("DELETE FROM film WHERE film_id = 2", "UPDATE film SET title = 'new' WHERE film_id = 3")
    with pytest.raises(SourceLost, match=f"the slot {films.name} is gone") as lost:
        films.ingest()
    assert "on_lost: copy" in lost.value.fix
    films.declare(on_lost="copy")
    report = films.ingest()
    assert films.held() == films.films() == {1: ("film 1", "PG"), 3: ("new", "PG")}
    assert any("is copied again" in note for note in report.notes)
    films.execute("DELETE FROM film WHERE film_id = 1")
    films.ingest()
    assert films.held() == films.films()


def test_another_reader_of_the_slot_is_noticed(films):
    films.ingest()
    add(films, 1, 1)
    films.session.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [films.name])
    with pytest.raises(SourceLost, match=f"another reader moved the slot {films.name} on"):
        films.ingest()


@pytest.mark.parametrize(
    ("statement", "declared", "message"),
    [
        ("DROP TABLE film", {}, "there is no table public.film"),
        ("ALTER TABLE film DROP CONSTRAINT film_pkey", {}, "film_id does not identify the rows"),
        ("CREATE PUBLICATION other", {"publication": "other"}, "the publication other lacks public.film"),
        (
            "CREATE PUBLICATION other FOR TABLE film WITH (publish = 'insert')",
            {"publication": "other"},
            "leaves out delete, truncate, update",
        ),
        (
            "CREATE PUBLICATION other FOR TABLE film WHERE (film_id > 3)",
            {"publication": "other"},
            "leaves out rows of public.film",
        ),
    ],
)
def test_what_is_missing_is_refused_before_a_slot_is_made(films, statement, declared, message):
    if "WHERE" in statement:
        needs_postgres(films.session, 15)
    films.execute(statement)
    films.declare(**declared)
    with pytest.raises(SourceRefused, match=message):
        films.ingest()
    assert films.confirmed() is None


def test_columns_come_go_and_change_while_the_log_is_read(films):
    add(films, 1, 1)
    films.ingest()
    films.execute(
        "ALTER TABLE film ADD length interval, ADD price numeric(9,2), ADD tags text[]",
        "INSERT INTO film VALUES (2, 'two', 'R', '2 hours', 12345.60, '{a,b}')",
        "ALTER TABLE film DROP length",
        "INSERT INTO film VALUES (3, 'three', 'R', 1.50, '{{a},{b}}')",
        "INSERT INTO film VALUES (4, 'four', 'R', 'NaN', NULL)",
        "ALTER TABLE film ALTER price TYPE text USING price::text",
        "INSERT INTO film VALUES (5, 'five', 'R', 'cheap', NULL)",
    )
    films.ingest()
    found = {each["film_id"]: each for each in films.records()}
    assert (found[2]["length"], found[2]["price"], found[2]["tags"]) == ("PT2H", 12345.6, ["a", "b"])
    assert "length" not in found[5]
    assert found[5]["price"] == "cheap"
    assert [row["reason"] for row in films.pipeline.rejected()] == ["MalformedValue"] * 2


def test_other_tables_and_much_log_without_a_change_are_confirmed_without_records(films, monkeypatch):
    from etl_assets.sources.postgres_cdc import source

    films.execute("CREATE TABLE other (id int)")
    films.ingest()
    films.execute("INSERT INTO other SELECT generate_series(1, 1000)")
    assert films.ingest().commits == 0
    monkeypatch.setattr(source, "UNCONFIRMED_BYTES", 1_000)
    before = films.confirmed()
    assert films.ingest().commits == 1
    assert films.confirmed() != before
    assert films.records() == []


def test_a_mirrored_table_confirms_what_a_majority_has(postgres_server, tmp_path):
    domains = [{"name": each, "root": each} for each in ("a", "b", "c")]
    films = Followed.create(postgres_server, tmp_path, domains=domains)
    films.root = "a"
    try:
        add(films, 1, 2)
        films.ingest()
        films.load_and_die(f"{Failpoint.TABLE_AFTER_COMMIT}@people")
        add(films, 3, 3)
        films.ingest()
        films.pipeline.load(None)  # completes the commit of the killed process first
        assert {row["film_id"] for row in films.pipeline.home.rows("people", root="a")} == {1, 2, 3}
        confirmed = films.confirmed()
        add(films, 4, 5)
        films.ingest_and_die(f"{Failpoint.TABLE_AFTER_COMMIT}@{SOURCE}")
        assert films.confirmed() == confirmed  # one domain of three has it
        films.execute("DELETE FROM film WHERE film_id = 1")
        films.ingest()  # completes the commit of the killed process first
        assert films.held() == films.films()
        assert films.pipeline.positions["log"]["lsn"] == films.confirmed()
    finally:
        films.close()


def test_check_of_a_pipeline_says_what_its_first_run_makes(films, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(films.pipeline.home.path))
    found = CliRunner().invoke(cli, ["cdc", "check", "people"])
    assert found.exit_code == 0, found.output
    assert "films is not there yet, and the first run makes it" in found.output
    films.ingest()
    found = CliRunner().invoke(cli, ["cdc", "check", "people"])
    assert f"the slot {films.name} keeps" in found.output
    assert CliRunner().invoke(cli, ["cdc", "check", "nobody"]).exit_code != 0
    assert CliRunner().invoke(cli, ["cdc", "check"]).exit_code == 2


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        ({"keys": ["film_id"], "sequence_by": "film_id"}, {}, "leave table.sequence_by out"),
        ({"keys": ["film_id"], "write_mode": "insert"}, {}, "write_mode insert does not apply"),
        ({"keys": ["film_id"]}, {"lsn_in_source": "bigint"}, "is the platform's here"),
    ],
)
def test_a_declaration_that_contradicts_the_log_is_refused(table, columns, message):
    source = {"type": "postgres_cdc", "connection": "c", "table": "a.b", "publication": "p", "slot": "s"}
    spec = {"name": "n", "source": source, "columns": {"film_id": "bigint", **columns}, "table": table}
    with pytest.raises(ValidationError, match=message):
        PipelineSpec.model_validate(spec)


def test_a_declaration_that_was_written_down_is_the_same_when_it_is_read_again():
    source = {"type": "postgres_cdc", "connection": "c", "table": "a.b", "publication": "p", "slot": "s"}
    spec = {"name": "n", "source": source, "columns": {"id": "bigint"}, "table": {"keys": ["id"]}}
    first = PipelineSpec.model_validate(spec)
    assert first.table.sequence_by == "lsn_in_source"
    assert PipelineSpec.model_validate(first.model_dump(by_alias=True)) == first


def test_changes_before_an_alter_table_are_stored_and_the_pipeline_stops_there_until_it_fits(films):
    films.declare(columns={"film_id": "bigint", "title": "string", "rating": "string", "stars": "int"})
    films.execute("ALTER TABLE film ADD stars smallint")
    films.execute("INSERT INTO film VALUES (1, 'one', 'R', 3)")
    films.ingest()
    films.execute(
        "ALTER TABLE film ADD note text",
        "INSERT INTO film VALUES (2, 'two', 'R', 4, 'x')",
        "ALTER TABLE film ALTER stars TYPE int, DROP note",
        "BEGIN; UPDATE film SET stars = 5 WHERE film_id = 2; ALTER TABLE film RENAME title TO name;"
        " INSERT INTO film VALUES (3, 'three', 'R', 1); COMMIT",
    )
    with pytest.raises(SourceSchemaChanged) as stopped:
        films.ingest()
    assert stopped.value.fields["changes"] == ["title was renamed to name"]
    assert "have `from: name`" in str(stopped.value)
    assert [(each["film_id"], each["stars"]) for each in films.records()] == [(1, 3), (2, 4)]
    with pytest.raises(SourceSchemaChanged):
        films.ingest()
    renamed = {"film_id": "bigint", "title": {"type": "string", "from": "name"}, "stars": "int"}
    films.declare(columns=renamed)
    films.ingest()
    later = [(each["film_id"], each.get("title"), each.get("name")) for each in films.records()[2:]]
    assert later == [(2, "two", None), (3, None, "three")]
    assert not films.pipeline.rejected()
    assert films.ingest().commits == 0


def test_rows_after_a_change_that_does_not_fit_are_quarantined_until_the_declaration_fits(films):
    films.declare(schema_changes="quarantine")
    add(films, 1, 2)
    films.ingest()
    films.execute("ALTER TABLE film DROP rating", "INSERT INTO film VALUES (3, 'three')")
    films.execute("DELETE FROM film WHERE film_id = 1")
    films.ingest()
    films.execute("INSERT INTO film VALUES (4, 'four')")
    films.ingest()
    rejected = films.pipeline.rejected()
    assert [row["reason"] for row in rejected] == ["SchemaChanged"] * 2
    assert "rating was dropped" in rejected[0]["error"]
    assert [each["postgres.change"] for each in films.records()] == ["upsert", "upsert", "delete"]
    films.declare(columns={"film_id": "bigint", "title": "string"}, schema_changes="quarantine")
    films.execute("INSERT INTO film VALUES (5, 'five')")
    films.ingest()
    assert films.records()[-1]["film_id"] == 5
    assert len(films.pipeline.rejected()) == 2


def test_a_column_that_is_dropped_while_the_table_is_copied_stops_the_copy(films):
    films.declare(max_batch_records=2)
    add(films, 1, 4)
    with pytest.raises(SourceSchemaChanged, match="rating was dropped"):
        _ingest_after_first_range(films, "ALTER TABLE film DROP rating")
    assert len(films.records()) == 2
    films.declare(columns={"film_id": "bigint", "title": "string"}, max_batch_records=2)
    films.ingest()
    assert [each["film_id"] for each in films.records()] == [1, 2, 3, 4]


def _ingest_after_first_range(films: Followed, statement: str) -> None:
    films.ingest_and_die(f"{Failpoint.TABLE_AFTER_COMMIT}@{SOURCE}")
    films.execute(statement)
    films.ingest()


def test_a_partitioned_table_is_followed_and_copied_again_where_rows_came_with_a_partition(films):
    films.execute(
        "DROP TABLE film",
        "CREATE TABLE film (film_id int8 PRIMARY KEY, title text, rating text) PARTITION BY RANGE (film_id)",
        "CREATE TABLE film_low PARTITION OF film FOR VALUES FROM (0) TO (100)",
        "CREATE PUBLICATION other FOR TABLE film",
    )
    films.declare(publication="other")
    with pytest.raises(SourceRefused, match="as those of its partitions") as refused:
        films.ingest()
    films.execute(refused.value.fix)
    add(films, 1, 3)
    films.ingest()
    films.execute(
        "CREATE TABLE film_high PARTITION OF film FOR VALUES FROM (100) TO (200)",
        "UPDATE film SET film_id = 103 WHERE film_id = 3",
    )
    films.ingest()
    assert films.held() == films.films()
    films.execute(
        "CREATE TABLE film_top (LIKE film INCLUDING INDEXES)",
        "INSERT INTO film_top VALUES (201, 'top', 'R')",
        "ALTER TABLE film ATTACH PARTITION film_top FOR VALUES FROM (200) TO (300)",
    )
    with pytest.raises(SourceLost, match=r"rows of public\.film came or went with its partitions"):
        films.ingest()
    films.declare(publication="other", on_lost="copy")
    films.ingest()
    assert films.held() == films.films()
    films.execute("DROP TABLE film_low")
    films.ingest()
    assert films.held() == films.films()
    assert set(films.held()) == {103, 201}
    assert films.ingest().commits == 0


def test_a_dropped_publication_is_an_error_until_the_table_may_be_copied_again(films):
    add(films, 1, 3)
    films.ingest()
    films.execute("DROP PUBLICATION films", "DELETE FROM film WHERE film_id = 1")
    with pytest.raises(SourceLost, match="the publication films was dropped"):
        films.ingest()
    films.execute("CREATE PUBLICATION films FOR TABLE film")
    with pytest.raises(SourceLost, match="the publication films was dropped"):
        films.ingest()
    films.declare(on_lost="copy")
    films.ingest()
    assert films.held() == films.films()


def test_a_table_that_was_out_of_its_publication_for_a_time_is_lost_until_it_may_be_copied_again(films):
    add(films, 1, 3)
    films.ingest()
    films.execute(
        "ALTER PUBLICATION films DROP TABLE film",
        "DELETE FROM film WHERE film_id = 1",
        "ALTER PUBLICATION films ADD TABLE film",
    )
    for _ in range(2):
        add(films, 4, 4)
        with pytest.raises(SourceLost, match=r"may have left out changes of public\.film for a time"):
            films.ingest()
        films.execute("DELETE FROM film WHERE film_id = 4")
    films.declare(on_lost="copy")
    films.ingest()
    assert films.held() == films.films()


@pytest.mark.spark
def test_a_null_in_a_required_column_is_a_dead_letter_with_its_column_and_its_row(films, spark):
    films.declare(columns={**COLUMNS, "title": {"type": "string", "required": True}})
    add(films, 1, 2)
    films.execute("INSERT INTO film VALUES (3, NULL, 'G')")
    films.ingest()
    films.execute("UPDATE film SET title = NULL WHERE film_id = 1")
    films.ingest()
    films.pipeline.load(spark)
    found = {
        json.loads(row["record"])["film_id"]: (row["reason"], row["error"])
        for row in films.pipeline.home.rows("people_rejects")
    }
    why = ("MissingField", "title is missing or null")
    assert found == {1: why, 3: why}
    assert {row["film_id"] for row in films.pipeline.home.rows("people")} == {1, 2}
