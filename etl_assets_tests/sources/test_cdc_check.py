"""`etl-assets cdc check` over real servers: each thing that is missing, with the statement that adds it."""

from __future__ import annotations

import json
import uuid
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner

from etl_assets.cli.main import cli
from etl_assets.sources.postgres_cdc.log_server import LogServer
from etl_assets.sources.postgres_cdc.server_state import HAS_FAILOVER_SLOTS, read_server_state
from etl_assets.stack.postgres import PostgresServer
from etl_assets_tests.commands.home import Home
from etl_assets_tests.servers import needs_postgres, postgres_binaries

ALL = "public.film"
NAME = f"c{uuid.uuid4().hex[:10]}"
"""The database of this file and its role, made again for each test but for their names."""


class Checked:
    """A database with a role that may do all that is needed, and an installation that names it."""

    def __init__(self, server: PostgresServer, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.role, self.name = server, NAME, NAME
        with psycopg.connect(server.url, autocommit=True) as admin:
            if not admin.execute("SELECT FROM pg_database WHERE datname = %s", [NAME]).rowcount:
                admin.execute(f"CREATE DATABASE {NAME}".encode())
                admin.execute(f"CREATE ROLE {NAME} LOGIN PASSWORD 'secret'".encode())
        self.admin = psycopg.connect(server.database_url(NAME), autocommit=True)
        self.run(
            "DROP PUBLICATION IF EXISTS films",
            "DROP SCHEMA IF EXISTS s, public CASCADE",
            "CREATE SCHEMA public",
            "GRANT USAGE ON SCHEMA public TO $",
            "ALTER ROLE $ REPLICATION NOBYPASSRLS",
            "REVOKE CREATE ON DATABASE $ FROM $",
            "CREATE TABLE film (film_id int PRIMARY KEY, rating varchar(5))",
            "GRANT SELECT ON film TO $",
            "CREATE PUBLICATION films FOR TABLE film",
        )
        monkeypatch.setenv("ETL_ASSETS_HOME", str(home.path))
        monkeypatch.setenv("CHECK_PASSWORD", "secret")
        home.begin(connections={"shop": self.connection()})

    def connection(self) -> dict[str, object]:
        parts = urlsplit(self.server.url)
        address = {"host": parts.hostname, "port": parts.port, "database": self.name, "user": self.role}
        return {"type": "postgres", "password": "${CHECK_PASSWORD}", **address}

    def run(self, *statements: str) -> None:
        for each in statements:
            self.admin.execute(each.replace("$", self.role).encode())

    def check(self, *arguments: str, code: int | None = None) -> list[dict[str, str]]:
        given = ("--connection", "shop", *(arguments or ("--table", ALL, "--publication", "films")), "--json")
        result = CliRunner().invoke(cli, ["cdc", "check", *given])
        assert result.stdout, result.output
        found = json.loads(result.stdout)
        assert result.exit_code == any(each["status"] == "fail" for each in found)
        assert code is None or result.exit_code == code
        assert all((each["fix"] is None) == (each["status"] == "ok") for each in found)
        return found

    def problems(self, *arguments: str) -> list[tuple[str, str, str]]:
        """Return check, detail and fix of what is wrong beside the settings of a server for tests."""
        found = self.check(*arguments)
        return [
            (each["check"], each["detail"], each["fix"])
            for each in found
            if each["status"] != "ok" and each["check"] != "settings"
        ]

    def close(self) -> None:
        self.admin.close()


@pytest.fixture
def shop(postgres_server, tmp_path, monkeypatch):
    found = Checked(postgres_server, Home(path=tmp_path / "home"), monkeypatch)
    yield found
    found.close()


def test_a_server_with_everything_has_no_problem_and_stays_as_it_is(shop):
    found = shop.check(code=0)
    assert {"server", "settings", "replication slots", "walsenders", "privileges"} <= {
        each["check"] for each in found
    }
    assert shop.problems() == []
    assert ("replica identity", "public.film: primary key (film_id)") in [
        (each["check"], each["detail"]) for each in found
    ]
    assert shop.problems("--publication", "films") == []  # its tables are those of the publication
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert shop.admin.execute(slots).fetchone() == (0,)


@pytest.mark.parametrize(
    ("statements", "table", "check", "detail", "fix"),
    [
        (
            "ALTER ROLE $ NOREPLICATION",
            ALL,
            "privileges",
            "$ may not read the log",
            "ALTER ROLE $ REPLICATION",
        ),
        (
            "REVOKE SELECT ON film FROM $",
            ALL,
            "privileges",
            "may not read public.film",
            "GRANT SELECT ON public.film TO $",
        ),
        (
            "CREATE SCHEMA s; CREATE TABLE s.t (id int PRIMARY KEY); GRANT SELECT ON s.t TO $;"
            " ALTER PUBLICATION films ADD TABLE s.t",
            "s.t",
            "privileges",
            "may not use the schema s",
            "GRANT USAGE ON SCHEMA s TO $",
        ),
        (
            "ALTER TABLE film ENABLE ROW LEVEL SECURITY",
            ALL,
            "privileges",
            "row-level security hides rows of public.film",
            "ALTER ROLE $ BYPASSRLS",
        ),
        (
            "DROP PUBLICATION films",
            ALL,
            "publication",
            "there is no publication films",
            "GRANT CREATE ON DATABASE",
        ),
        (
            "DROP PUBLICATION films; GRANT CREATE ON DATABASE $ TO $",
            ALL,
            "publication",
            "there is no publication films",
            "as the owner of public.film: CREATE PUBLICATION films FOR TABLE public.film",
        ),
        (
            "DROP PUBLICATION films; GRANT CREATE ON DATABASE $ TO $; ALTER TABLE film OWNER TO $",
            ALL,
            "publication",
            "there is no publication films",
            "CREATE PUBLICATION films FOR TABLE public.film",
        ),
        (
            "ALTER PUBLICATION films DROP TABLE film",
            ALL,
            "publication",
            "films lacks public.film",
            "ALTER PUBLICATION films ADD TABLE public.film",
        ),
        (
            "ALTER PUBLICATION films SET (publish = 'insert, update')",
            ALL,
            "publication",
            "films leaves out delete, truncate",
            "ALTER PUBLICATION films SET (publish = 'insert, update, delete, truncate')",
        ),
        (
            "ALTER PUBLICATION films SET TABLE film WHERE (film_id > 3)",
            ALL,
            "publication",
            "leaves out rows of public.film",
            "ALTER PUBLICATION films DROP TABLE public.film",
        ),
        (
            "ALTER PUBLICATION films SET TABLE film (film_id)",
            ALL,
            "publication",
            "leaves out columns of public.film: rating",
            "ADD TABLE public.film",
        ),
        (
            "DROP PUBLICATION films; CREATE PUBLICATION films FOR ALL TABLES",
            ALL,
            "publication",
            "films has all tables of the database",
            "make one FOR TABLE",
        ),
        (
            "CREATE TABLE etl_assets_positions (id int PRIMARY KEY);"
            " ALTER PUBLICATION films ADD TABLE etl_assets_positions",
            ALL,
            "publication",
            "films has tables of the platform itself: public.etl_assets_positions",
            "ALTER PUBLICATION films DROP TABLE public.etl_assets_positions",
        ),
        (
            "ALTER TABLE film REPLICA IDENTITY NOTHING",
            ALL,
            "replica identity",
            "public.film has the replica identity NOTHING",
            "ALTER TABLE public.film REPLICA IDENTITY DEFAULT",
        ),
        (
            "ALTER TABLE film DROP CONSTRAINT film_pkey",
            ALL,
            "replica identity",
            "public.film has neither a primary key",
            "ALTER TABLE public.film REPLICA IDENTITY FULL",
        ),
        (
            "ALTER TABLE film ADD doubled int GENERATED ALWAYS AS (film_id * 2) STORED",
            ALL,
            "columns",
            "public.film: doubled is generated",
            "leave doubled out",
        ),
        (
            "ALTER TABLE film ADD tags int[], REPLICA IDENTITY FULL",
            ALL,
            "columns",
            "public.film: tags (integer[])",
            "nothing, if every value has one dimension",
        ),
        ("SELECT 1", "public.flim", "tables", "there is no table public.flim", "public.film"),
        ("SELECT 1", 'x".y(', "tables", 'there is no table x".y(', "public.film"),
        (
            "CREATE VIEW v AS SELECT 1; GRANT SELECT ON v TO $",
            "v",
            "tables",
            "public.v is no table",
            "type sql",
        ),
        (
            "CREATE UNLOGGED TABLE u (id int PRIMARY KEY); GRANT SELECT ON u TO $",
            "u",
            "tables",
            "public.u is unlogged",
            "ALTER TABLE public.u SET LOGGED",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_what_is_missing_is_named_with_the_statement_that_adds_it(
    shop, statements, table, check, detail, fix
):
    if " SET TABLE " in statements:  # some rows or columns of it
        needs_postgres(shop.admin, 15)
    shop.run(*statements.split(";"))
    found = shop.problems("--table", table, "--publication", "films")
    detail, fix = detail.replace("$", shop.role), fix.replace("$", shop.role)
    assert [each for each in found if each[0] == check and detail in each[1] and fix in each[2]], found


def test_every_fix_that_is_a_statement_fixes(shop):
    shop.run(
        "ALTER ROLE $ NOREPLICATION",
        'CREATE TABLE "My Films" (id int PRIMARY KEY, note text)',
        "ALTER PUBLICATION films DROP TABLE film",
        "ALTER PUBLICATION films SET (publish = 'insert')",
    )
    given = ("--table", '"My Films"', "--table", ALL, "--publication", "films")
    found = shop.problems(*given)
    for _, _, fix in found:
        shop.run(fix.partition("; on Amazon")[0])
    assert len(found) == 5
    assert shop.problems(*given) == []


def test_columns_that_become_texts_are_named(shop):
    shop.run("ALTER TABLE film ADD length interval, ADD price numeric, REPLICA IDENTITY FULL")
    found = [each["detail"] for each in shop.check(code=0) if each["check"] == "columns"]
    assert found == ["public.film: read as text: length (interval), price (numeric)"]


def test_a_slot_is_looked_at_by_its_name(shop):
    shop.admin.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [shop.name])
    try:
        found = shop.problems("--table", ALL, "--slot", shop.name)
        assert found == [
            (
                "replication slots",
                f"the slot {shop.name} is one of test_decoding in the database {shop.name}, not one of"
                f" pgoutput in {shop.name}",
                "use another name for the slot",
            )
        ]
    finally:
        shop.admin.execute("SELECT pg_drop_replication_slot(%s)", [shop.name])


def test_a_server_that_lacks_everything_says_each_thing(tmp_path, monkeypatch):
    settings = {
        "wal_level": "replica",
        "max_replication_slots": "0",
        "max_wal_senders": "0",
        "max_slot_wal_keep_size": "100MB",
        "synchronous_commit": "off",
    }
    with PostgresServer(durable=False, settings=settings, binaries=postgres_binaries()) as server:
        shop = Checked(server, Home(path=tmp_path / "home"), monkeypatch)
        found = {each["detail"]: each["fix"] for each in shop.check(code=1) if each["status"] != "ok"}
        shop.close()
    fixes = " | ".join(found.values())
    for expected in (
        "ALTER SYSTEM SET wal_level = 'logical', then restart the server",
        "ALTER SYSTEM SET max_replication_slots = 2, then restart the server",
        "ALTER SYSTEM SET max_wal_senders = 1, then restart the server",
        "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'",
        "ALTER SYSTEM SET synchronous_commit = 'on'",
    ):
        assert expected in fixes


def test_a_server_that_does_not_answer_and_a_connection_that_is_not_there_are_named(shop, tmp_path):
    home = Home(path=tmp_path / "home")
    home.begin(connections={"shop": {**shop.connection(), "port": 1}})
    (only,) = shop.check(code=1)
    assert (only["check"], only["fix"]) == (
        "connection",
        "start it, or correct `connections.shop` in the platform file",
    )
    assert "secret" not in json.dumps(only)
    result = CliRunner().invoke(cli, ["cdc", "check", "--connection", "none"])
    assert "shop" in str(getattr(result.exception, "fix", ""))


def test_a_slot_is_a_failover_slot_where_the_server_has_them_and_the_source_wants_it(shop):
    for wanted in (True, False):
        name = f"{shop.name}_{wanted}".lower()
        server = LogServer(
            name="shop",
            address=shop.server.database_url(shop.name),
            slot=name,
            publication="films",
            failover=wanted,
        )
        with server.asked():
            server.create_slot()
            state = read_server_state(server.session, publication=None, tables=[])
            server.drop_slot()
        server.close()
        (made,) = (each for each in state.slots if each.name == name)
        assert made.is_failover == (wanted and state.version >= HAS_FAILOVER_SLOTS)
