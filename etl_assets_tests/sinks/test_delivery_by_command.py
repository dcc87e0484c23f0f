"""A declared pipeline from CSV files to PostgreSQL, by the commands that a user types, killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pytest
import yaml

from etl_assets.stack.postgres import PostgresServer
from etl_assets_tests.commands.home import BIN, SPARK

PIPELINE = """
name: films
source: {type: files, path: "landing/*.csv", id: [film_id, rating], settle_seconds: 0}
columns: {film_id: bigint, rating: "decimal(4,2)", title: string}
table: {keys: [film_id]}
sinks:
  - {type: postgres, connection: warehouse, table: by_command.films}
"""

DELIVER = """
from etl_assets.settings import load_installation
from etl_assets.steps.step import ReadMode, StepArguments, StepContext, step_of
settings = load_installation()
context = StepContext(session=lambda: None, domain=settings.placement().domains[0])
step_of(
    "films_to_postgres",
    StepArguments(settings=settings, context=context, mode=ReadMode.INCREMENTAL),
).run([])
"""


@pytest.fixture
def command(tmp_path: Path, postgres_server: PostgresServer) -> Callable[..., int]:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "landing").mkdir()
    connection = {
        "type": "postgres",
        "host": "127.0.0.1",
        "port": postgres_server.port,
        "database": "postgres",
        "user": postgres_server.user,
        "password": "${WAREHOUSE_PASSWORD}",
        "write": ["by_command.*"],
    }
    settings = {"pipelines": {"built_in": []}, "spark": SPARK, "connections": {"warehouse": connection}}
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "pipelines" / "films.yaml").write_text(PIPELINE)

    def run(*arguments: str, failpoint: str = "", program: str = "etl-assets") -> int:
        environment = {
            **os.environ,
            "ETL_ASSETS_HOME": str(tmp_path),
            "WAREHOUSE_PASSWORD": postgres_server.password,
            "ETL_ASSETS_FAILPOINT": failpoint,
        }
        return subprocess.run(
            [BIN / program, *arguments], env=environment, timeout=280, check=False
        ).returncode

    return run


def test_rows_arrive_once_however_a_run_is_killed_and_an_undo_takes_them_out(
    command: Callable[..., int],
    tmp_path: Path,
    postgres_server: PostgresServer,
):
    def stored() -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres_server.url) as session:
            return session.execute("SELECT film_id, title FROM by_command.films ORDER BY 1").fetchall()

    def deliveries() -> list[dict[str, Any]]:
        (folder,) = (tmp_path / "data" / "tables" / "films_to_postgres").glob("g*")
        return sorted(
            deltalake.DeltaTable(folder).to_pyarrow_table().to_pylist(), key=lambda row: row["_batch_id"]
        )

    assert command("pipelines", "validate") == 0
    (tmp_path / "landing" / "a.csv").write_text("film_id,rating,title\n1,4.5,Alien\n2,3.25,Brazil\n")
    assert command("run", failpoint="sink.before_target_commit") == -signal.SIGKILL
    assert command("run", failpoint="sink.after_target_commit") == -signal.SIGKILL
    assert stored() == [(1, "Alien"), (2, "Brazil")]
    assert command("run") == 0
    assert stored() == [(1, "Alien"), (2, "Brazil")]
    assert [each["written"] for each in deliveries()] == [None]  # its writer died before it recorded it

    (tmp_path / "landing" / "b.csv").write_text("film_id,rating,title\n2,3.5,Brasil\n3,1.0,Casino\n")
    assert command("run", failpoint="table.before_commit@films_to_postgres") == -signal.SIGKILL
    assert command("run") == 0
    assert stored() == [(1, "Alien"), (2, "Brasil"), (3, "Casino")]
    assert [(each["to_version"], each["from_version"]) for each in deliveries()] == [(1, 1), (2, 2)]

    assert command("tables", "restore", "films", "--to-version", "1", "--yes", "--no-run") == 0
    # The delivery alone, before a run has made the rows again.
    assert command("-c", DELIVER, program="python") == 0
    assert stored() == [(1, "Alien"), (2, "Brazil")]
    assert (deliveries()[-1]["whole"], deliveries()[-1]["deleted"]) == (True, 1)
