"""A run is executed once: by the engine's child after the word to go, or by nobody there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from etl_assets.engine.code_version import loaded_state, variables
from etl_assets.engine.ipc import (
    GO,
    SOCKET,
    Asked,
    hand_over,
    listening,
    read_message,
    send_message,
    status,
)
from etl_assets.engine.parent import die_with

ASKED = Asked(
    run_id="run-1", instance="{}", executable=sys.executable, working_directory="/", environment={"A": "b"}
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Deeper than the address of a socket may be long."""
    home = tmp_path / ("long-" * 20) / "home"
    home.mkdir(parents=True)
    return home


@contextmanager
def engine(home: Path, serve: Callable[[socket.socket], None]) -> Generator[None]:
    with listening(home) as listener:

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(5)
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield
        thread.join(10)


def refuse_to_begin(_: int) -> None:
    raise AssertionError


def test_without_an_engine_nothing_is_handed_over(home):
    assert not hand_over(home, ASKED, refuse_to_begin)
    assert status(home) is None


def test_a_socket_that_a_killed_engine_left_is_no_engine(home):
    with socket.socket(socket.AF_UNIX) as left:
        before = Path.cwd()
        os.chdir(home)
        try:
            left.bind(SOCKET)
        finally:
            os.chdir(before)
    assert not hand_over(home, ASKED, refuse_to_begin)
    with listening(home):
        pass


def test_the_socket_is_for_its_user_only(home):
    with listening(home):
        assert (home / SOCKET).stat().st_mode & 0o777 == 0o600
    assert not (home / SOCKET).exists()


def test_a_child_is_told_to_go_after_the_run_knows_of_it(home):
    order: list[object] = []

    def serve(connection: socket.socket) -> None:
        assert read_message(connection)["run"]["run_id"] == "run-1"
        send_message(connection, {"pid": 7})
        order.append(connection.recv(len(GO)))

    with engine(home, serve):
        assert hand_over(home, ASKED, order.append)
    assert order == [7, GO]


def test_what_the_engine_refuses_is_not_handed_over(home):
    def serve(connection: socket.socket) -> None:
        read_message(connection)
        send_message(connection, {"refused": "starting"})

    reasons: list[str] = []
    with engine(home, serve):
        assert not hand_over(home, ASKED, refuse_to_begin, reasons.append)
    assert reasons == ["starting"]


def test_a_child_is_not_told_to_go_when_its_run_cannot_know_of_it(home):
    heard: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        read_message(connection)
        send_message(connection, {"pid": 7})
        heard.append(connection.recv(len(GO)))

    def fail(_: int) -> None:
        raise RuntimeError("the storage of runs is away")

    with engine(home, serve), pytest.raises(RuntimeError):
        hand_over(home, ASKED, fail)
    assert heard == [b""]


@pytest.mark.parametrize("answer", [b"", b"{", b"[1]\n", b"no json\n"])
def test_an_answer_that_is_none_hands_nothing_over(home, answer):
    def serve(connection: socket.socket) -> None:
        read_message(connection)
        connection.sendall(answer)

    with engine(home, serve):
        assert not hand_over(home, ASKED, refuse_to_begin)


def test_what_was_loaded_is_out_of_date_when_the_platform_file_or_a_variable_changes(tmp_path):
    environ = {"ETL_ASSETS_HOME": str(tmp_path)}
    states = [loaded_state(environ)]
    assert loaded_state(environ) == states[0]
    (tmp_path / "platform.yaml").write_text("start_date: 2026-01-01\n")
    states.append(loaded_state(environ))
    states.append(loaded_state({**environ, "ETL_ASSETS_SPARK_MASTER": "local[1]"}))
    assert len(set(states)) == 3


def test_variables_of_a_run_alone_do_not_keep_it_from_the_engine():
    assert variables({"ETL_ASSETS_HOME": "/a", "ETL_ASSETS_FAILPOINT": "x", "PATH": "/bin"}) == {}


def test_the_address_of_the_database_is_the_same_as_a_user_writes_it_and_as_dagster_gets_it():
    url, other = "postgresql://dagster@db/runs", "postgresql+psycopg2://dagster@db/runs"
    assert variables({"ETL_ASSETS_POSTGRES_URL": url}) == variables({"ETL_ASSETS_POSTGRES_URL": other})
    assert variables({"ETL_ASSETS_POSTGRES_URL": url}) != variables({"ETL_ASSETS_POSTGRES_URL": url + "2"})


@pytest.mark.parametrize(("parent", "code"), [(os.getpid, 0), (os.getppid, -signal.SIGKILL)])
def test_a_process_whose_parent_has_ended_before_the_kernel_was_told_ends_too(parent, code):
    assert subprocess.run(["true"], preexec_fn=partial(die_with, parent()), check=False).returncode == code
