"""A database with some tables, and an installation whose capture follows them.

Belongs here: what tests of captures share. Does not belong here: what they expect.
"""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import os
import shutil
import uuid
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import psycopg

from etl_assets.captures import discover, states_of
from etl_assets.observability.pending import source_of
from etl_assets.pipelines.capture_files import find_capture
from etl_assets.settings import Settings, load_settings
from etl_assets.sources.captures.connect import capture_reader, close_readers
from etl_assets.sources.captures.discovery import FoundTables
from etl_assets.sources.captures.log_reader import CaptureReader
from etl_assets.sources.captures.spool import SpoolState
from etl_assets.sources.captures.table_states import CapturedTableState
from etl_assets.sources.positions import read_positions
from etl_assets.sources.postgres_cdc.lsn import parse_lsn
from etl_assets.sources.ranges import Positions, RangeSource
from etl_assets.stack.postgres import PostgresServer
from etl_assets.steps.placing import place
from etl_assets.steps.step import ReadMode, Step, StepArguments, StepContext, StepReport, platform_table
from etl_assets_tests.commands.home import Home
from etl_assets_tests.sources.topics import START, SURVIVED, no_session, today

CAPTURE = "shop"
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["deltalake", "pyarrow", "psycopg", "etl_assets_tests.sources.captured"])


@dataclass(slots=True)
class Captured:
    """A database, a session of its owner, and an installation with the capture `shop` of its tables."""

    name: str
    session: psycopg.Connection
    home: Home
    root: str = "data"
    keeps_records: bool = True

    @classmethod
    def create(
        cls,
        server: PostgresServer,
        folder: Path,
        *,
        port: int | None = None,
        platform: Any = MappingProxyType({}),
        **capture: Any,
    ) -> Captured:
        """Make a database and an installation, which reaches it through another port if one is given.

        Args:
            server: The server.
            folder: Where the home folder is made.
            port: The other port.
            platform: More fields of the platform file.
            capture: Fields of the capture.
        """
        name = f"c{uuid.uuid4().hex[:10]}"
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        address = server.database_url(name)
        home = Home(path=folder / "home")
        os.environ["SHOP_PASSWORD"] = server.password
        parts = urlsplit(address)
        connection = {
            "type": "postgres",
            "host": parts.hostname,
            "port": port or parts.port,
            "database": name,
            "user": parts.username,
            "password": "${SHOP_PASSWORD}",
        }
        home.begin(
            **{
                "start_date": START.isoformat(),
                "connections": {"shop": connection},
                "pipelines": {"built_in": []},
                **platform,
            }
        )
        keeps_records = capture.get("keep_records", True)
        session = psycopg.connect(address, autocommit=True)
        found = cls(name, session, home, keeps_records=keeps_records)
        found.declare(**capture)
        return found

    def another(self, path: Path, root: str = "data") -> Captured:
        """Return another installation of the same platform, as on a machine that takes over.

        It has the declarations and nothing else of this home folder.
        """
        path.mkdir(parents=True)
        shutil.copy(self.home.path / "platform.yaml", path)
        shutil.copytree(self.home.path / "captures", path / "captures")
        return Captured(self.name, self.session, Home(path=path), root, self.keeps_records)

    def share_control_store(self, server: PostgresServer) -> None:
        """Let a database of a server be the control store, which other installations can use too."""
        name = f"{self.name}_control"
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        os.environ["CONTROL_PASSWORD"] = server.password
        parts = urlsplit(server.database_url(name))
        path = self.home.path / "platform.yaml"
        content = json.loads(path.read_text("utf-8"))
        content["connections"]["control"] = {
            "type": "postgres",
            "host": parts.hostname,
            "port": parts.port,
            "database": name,
            "user": parts.username,
            "password": "${CONTROL_PASSWORD}",
        }
        content["control"] = {"connection": "control"}
        path.write_text(json.dumps(content), "utf-8")

    def declare(self, **more: Any) -> None:
        spec = {
            "connection": "shop",
            "publication": "shop",
            "slot": self.name,
            "tables": ["public.*"],
            "look_interval_seconds": 0,
            **more,
        }
        folder = self.home.path / "captures"
        folder.mkdir(exist_ok=True)
        (folder / f"{CAPTURE}.yaml").write_text(json.dumps(spec), "utf-8")

    def connect(self, **options: Any) -> None:
        """Change options of the connection."""
        path = self.home.path / "platform.yaml"
        content = json.loads(path.read_text("utf-8"))
        content["connections"]["shop"] |= options
        path.write_text(json.dumps(content), "utf-8")

    @property
    def settings(self) -> Settings:
        return settings_of(self.home)

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement.encode())

    def make_tables(self, *names: str, rows: int = 3) -> None:
        for name in names:
            self.execute(
                f"CREATE TABLE {name} (id bigint PRIMARY KEY, title varchar(40), n int)",
                f"INSERT INTO {name} SELECT i, '{name} ' || i, i FROM generate_series(1, {rows}) i",
            )

    def discover(self) -> FoundTables:
        return discover(self.settings, CAPTURE)

    def states(self) -> dict[str, CapturedTableState]:
        return {each.table.removeprefix("public."): each for each in states_of(self.settings, CAPTURE)}

    def phases(self) -> dict[str, str]:
        return {name: state.phase.value for name, state in self.states().items()}

    def ingest(self, table: str, max_batches: int | None = None) -> StepReport:
        return _run(self.home, self.read_into(table), max_batches)

    def read_into(self, table: str) -> str:
        """The table that a table's log is read into."""
        return f"{CAPTURE}_{table}_source" if self.keeps_records else f"{CAPTURE}_{table}"

    def load(self, table: str, spark: Any = None) -> StepReport:
        """Run the step that makes the rows of a table, in this process."""
        return _run(self.home, f"{CAPTURE}_{table}", None, spark)

    def lag(self, table: str) -> int | None:
        """How many changes the table's step has to read; None: some."""
        with closing(self.opened(table)) as opened:
            return opened.lag(self.positions(table)).records

    def opened(self, table: str) -> RangeSource:
        """The source of a table, as the step opens it."""
        name = self.read_into(table)
        domain = place(self.settings.placement(), name)
        ranges = source_of(domain.catalog.stage(name), self.settings, domain).ranges
        assert ranges is not None  # it reads a log
        return ranges.open()

    def positions(self, table: str) -> Positions:
        name = self.read_into(table)
        return read_positions(platform_table(name, place(self.settings.placement(), name)))

    @property
    def reader(self) -> CaptureReader:
        return capture_reader(self.settings, find_capture(self.settings.home, CAPTURE))

    def look(self) -> SpoolState:
        """Let the reader look at the log, as each table's step does before it reads."""
        return self.reader.look(at_once=True)

    def settle(self, *tables: str, rounds: int = 6) -> None:
        """Run the steps of tables until all are ready, some rounds at most."""
        for _ in range(rounds):
            phases = self.phases()
            if all(phases[table] == "ready" for table in tables):
                return
            for table in tables:
                if phases[table] != "ready":
                    self.ingest(table)
            for _ in range(2):
                self.look()
        raise AssertionError(f"not ready: {self.phases()}")

    def ingest_and_die(self, table: str, failpoint: str) -> None:
        """Run the step of a table in a process that ends at a failpoint."""
        code = self.try_to_die(table, failpoint)
        assert code == -9, f"the process did not die at {failpoint}: {code}"

    def try_to_die(self, table: str, failpoint: str, stage: str = "source") -> int | None:
        """Run the step of a stage of a table in a process that ends at a failpoint, if it comes there."""
        process = self.begin(table, failpoint, stage)
        process.join(100)
        return process.exitcode

    def begin(self, table: str, failpoint: str, stage: str = "source") -> multiprocessing.Process:
        """Begin the step of a stage of a table in a process that comes to a failpoint."""
        name = self.read_into(table) if stage == "source" else f"{CAPTURE}_{table}_{stage}"
        process: Any = _processes.Process(target=_die, args=(self.home.path, name, passwords(), failpoint))
        process.start()
        return process

    def end_other_sessions(self) -> None:
        """End the server's processes of all sessions that make no changes, as an administrator may."""
        self.session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND application_name <> 'changes'"
        )

    def source(self, table: str) -> dict[Any, Any]:
        """The rows of the source."""
        return {row[0]: row[1:] for row in self.session.execute(f"SELECT * FROM {table}".encode())}

    def records(self, table: str) -> list[dict[str, Any]]:
        rows = self.home.rows(f"{CAPTURE}_{table}_source", root=self.root)
        return [json.loads(row["record"]) for row in sorted(rows, key=lambda row: row["offset"])]

    def held(self, table: str, columns: tuple[str, ...] = ("title", "n")) -> dict[Any, Any]:
        """What the accepted records say, applied by their places in the log, however they arrived."""
        newest: dict[Any, tuple[tuple[int, int], Any]] = {}
        emptied = (-1, -1)
        for each in self.records(table):
            place = (each["postgres.lsn"], each["postgres.sequence"])
            if each["postgres.change"] == "truncate":
                emptied = max(emptied, place)
            elif each["id"] not in newest or place >= newest[each["id"]][0]:
                is_row = each["postgres.change"] == "upsert"
                newest[each["id"]] = (place, tuple(each[c] for c in columns) if is_row else None)
        return {key: row for key, (place, row) in newest.items() if row is not None and place >= emptied}

    def confirmed(self) -> int:
        """Return the place up to which the server may have forgotten its log; 0 without a slot."""
        statement = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
        row = self.session.execute(statement, [self.name]).fetchone()
        return 0 if row is None or row[0] is None else parse_lsn(row[0])

    def close(self) -> None:
        close_readers(self.settings.home)
        if self.confirmed():
            self.session.execute("SELECT pg_drop_replication_slot(%s)", [self.name])
        self.session.close()


def settings_of(home: Home) -> Settings:
    return load_settings({"ETL_ASSETS_HOME": str(home.path)})


def ingest(home: Home, table: str, max_batches: int | None = None) -> StepReport:
    """Run the step that ingests a table's records, in this process."""
    return _run(home, f"{CAPTURE}_{table}_source", max_batches)


def _run(home: Home, name: str, max_batches: int | None, spark: Any = None) -> StepReport:
    return step_of(home, name, max_batches, spark).run([today()])


def step_of(home: Home, name: str, max_batches: int | None = None, spark: Any = None) -> Step:
    """Return a step with the definitions as they are now."""
    settings = settings_of(home)
    domain = place(settings.placement(), name)
    context = StepContext(
        session=no_session if spark is None else lambda: spark,
        domain=domain,
        clock=lambda: dt.datetime.now(dt.UTC),
        lock_wait_seconds=30,
    )
    arguments = StepArguments(
        settings=settings, context=context, mode=ReadMode.INCREMENTAL, max_batches=max_batches
    )
    return domain.catalog.stage(name).build_step(arguments)


def passwords() -> dict[str, str]:
    """Return the passwords of the installation's connections, as its processes have them."""
    names = ("SHOP_PASSWORD", "CONTROL_PASSWORD")
    return {name: os.environ[name] for name in names if name in os.environ}


def _die(home: Path, name: str, environment: dict[str, str], failpoint: str) -> None:
    os.environ |= {**environment, "ETL_ASSETS_FAILPOINT": failpoint}
    _run(Home(path=home), name, 3)
    os._exit(SURVIVED)
