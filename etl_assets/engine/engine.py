"""The engine's process: it keeps a warm Spark, listens, and forks a child for each run.

The process has one Python thread: a fork would copy the locks of other threads, and no thread would release
them. (pyarrow's jemalloc adds two threads that only return memory; it handles its locks at a fork.) So the
process itself never calls Spark, Dagster's storage or a table; its children do. However it ends, Spark and
the children end with it (`parent.py`), and their runs are noticed as lost.

**When Spark is replaced.** A run that did not succeed, above all one that was killed or cancelled, may have
left work in Spark that still writes. No query of Spark can prove that such work has ended. So no further run
gets that Spark, and it is killed once the last run on it is over. Until then the table's writer lock holds
the next writer off, which waits for that very JVM (`delta/write/lock.py`). Spark is also replaced when it
dies, does not answer, or has grown too large.
"""

from __future__ import annotations

import gc
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from etl_assets.engine.code_version import loaded_state, variables
from etl_assets.engine.ipc import Asked, listening, read_message, send_message
from etl_assets.engine.parent import die_with
from etl_assets.engine.run import NOT_BEGUN, SUCCEEDED, at_engine, execute
from etl_assets.engine.spark_server import SparkServer
from etl_assets.resources.jvm import works_here
from etl_assets.resources.spark import LONG_LIVED, SparkResource, spark_config
from etl_assets.settings import Settings, SparkSettings

MODULE, ATTRIBUTE = "etl_assets.definitions", "defs"
_LOOK_SECONDS = 5.0
_STARTING_LOOK_SECONDS = 0.2
_ANSWER_SECONDS = 2.0
_START_SECONDS = 180.0
_PROBE_EVERY_SECONDS = 60.0
_PROBE_SECONDS = 20.0
_BEYOND_HEAP_BYTES = 2 << 30
"""Memory that a healthy JVM takes besides its heap: classes, compiled code, buffers."""
_MAX_PAUSE_SECONDS = 300.0
_AFTER_ERROR_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A child at work: its task, its Spark, and its deadline (monotonic seconds; None for a run)."""

    what: str
    spark: SparkServer | None
    deadline: float | None = None


class Engine:
    """Serve runs until a signal ends the process."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings, self._say = settings, say
        self._config = LONG_LIVED | spark_config(settings.spark)
        self._scratch = settings.home.absolute() / "engine"
        self._local = works_here(self._config)
        self._heap = settings.spark.driver_memory_bytes
        self._children: dict[int, Child] = {}
        self._spark: SparkServer | None = None
        self._retired: list[SparkServer] = []
        self._failures, self._next_start, self._probed = 0, 0.0, time.monotonic()
        self._ending, self._stale, self._compared = False, False, 0.0
        self._state, self._told = "", ""

    def serve(self) -> bool:
        """Serve until a signal, or until the loaded code or settings have changed.

        Returns:
            Whether to start the engine again.

        Raises:
            FileExistsError: another engine serves this installation.
        """
        # Preload before listening: a client would wait for an answer meanwhile.
        self._preload()
        with ExitStack() as stack:
            listener = stack.enter_context(listening(self._settings.home))
            # No other engine listens, so anything here is left over from a killed one.
            shutil.rmtree(self._scratch, ignore_errors=True)
            woken = stack.enter_context(_woken_by_signals())
            stack.callback(self._end_all)
            selector = stack.enter_context(selectors.DefaultSelector())
            selector.register(listener, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while not ((self._ending or self._stale) and not self._children):
                with self._whatever_happens():
                    self._look_after()
                for key, _ in selector.select(self._pause()):
                    if key.fileobj is woken:
                        self._signalled(woken)
                        continue
                    with self._whatever_happens():
                        self._accept(listener)
        return self._stale and not self._ending

    def _preload(self) -> None:
        """Import what every run needs: the definitions, and the modules that steps import later."""
        import importlib

        from etl_assets.dagster_internals import load_run_command

        definitions = getattr(importlib.import_module(MODULE), ATTRIBUTE)
        definitions.get_repository_def().get_implicit_global_asset_job_def()
        for module in (
            "pyspark.sql.connect.session",
            "pyspark.sql.functions",
            "deltalake",
            "pyarrow",
        ):
            importlib.import_module(module)
        load_run_command()
        self._state = loaded_state(os.environ)
        # Freeze the objects: collections in children then do not touch, and so do not copy, their pages.
        gc.collect()
        gc.freeze()

    @contextmanager
    def _whatever_happens(self) -> Generator[None]:
        """Log an error and continue.

        The engine's end would end all its runs; the next turn of the loop retries.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 (a full disk, no process or file handle left, a file that has just vanished)
            told = f"{type(error).__name__}: {error}"
            if told != self._told:
                self._say(f"going on after {told}")
            self._told = told
            time.sleep(_AFTER_ERROR_SECONDS)

    def _signalled(self, woken: socket.socket) -> None:
        for number in woken.recv(256):
            if number in (signal.SIGINT, signal.SIGTERM):
                if self._ending:
                    self._kill_children()
                elif self._children:
                    self._say("ending once the runs under way have; again to end them")
                self._ending = True

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(_ANSWER_SECONDS)
            try:
                if not _same_user(connection):
                    return
                message = read_message(connection)
                if "run" in message:
                    self._take(connection, Asked(**message["run"]))
                else:
                    send_message(connection, self._status())
            except (OSError, ValueError, TypeError) as error:
                self._say(f"a request failed: {type(error).__name__}: {error}")

    def _take(self, connection: socket.socket, asked: Asked) -> None:
        if (refusal := self._refusal(asked)) is not None:
            send_message(connection, {"refused": refusal})
            return
        spark = self._spark
        pid = self._fork(f"run {asked.run_id}", spark, lambda: execute(asked, connection, spark))
        send_message(connection, {"pid": pid})

    def _refusal(self, asked: Asked) -> str | None:
        if asked.executable != sys.executable:
            return f"the run is for {asked.executable}, and the engine is {sys.executable}"
        if other := {
            name for name, _ in variables(asked.environment).items() ^ variables(os.environ).items()
        }:
            return f"its environment has another {', '.join(sorted(other))} than the run's"
        self._notice_changes()
        if self._stale or self._ending:
            return "the engine ends"
        if self._local and (self._spark is None or not self._spark.ready or not self._spark.alive()):
            return "Spark is being started"
        return None

    def _notice_changes(self) -> None:
        self._compared = time.monotonic()
        if not self._stale and loaded_state(os.environ) != self._state:
            self._say("code or settings have changed: starting again")
            self._stale = True

    def _status(self) -> dict[str, Any]:
        spark = self._spark
        ready = not self._local or (spark is not None and spark.ready)
        return {
            "pid": os.getpid(),
            "ready": ready and not (self._stale or self._ending),
            "spark": None if spark is None else spark.pid,
            "resident_bytes": 0 if spark is None else spark.resident_bytes(),
            "runs": sum(child.deadline is None for child in self._children.values()),
        }

    def _pause(self) -> float:
        starting = self._spark is not None and not self._spark.ready
        return _STARTING_LOOK_SECONDS if starting or self._retired else _LOOK_SECONDS

    def _look_after(self) -> None:
        """Do all periodic work, a little at a time."""
        now = time.monotonic()
        self._reap()
        for pid, child in self._children.items():
            late = child.deadline is not None and now > child.deadline
            # Without its Spark a run would retry for an hour and hold its table; a lost run is run again.
            if late or (child.spark is not None and not child.spark.alive()):
                os.kill(pid, signal.SIGKILL)
        self._end_retired()
        if now - self._compared > _LOOK_SECONDS:
            self._notice_changes()
        if not self._local or self._stale or self._ending:
            return
        if self._spark is None:
            if now >= self._next_start:
                self._start()
        elif not self._spark.alive():
            self._retire(self._spark, "has ended")
        elif not self._spark.ready:
            self._warm_up(self._spark)
        else:
            self._check(self._spark, now)

    def _start(self) -> None:
        try:
            self._spark = SparkServer(self._config, self._scratch)
        except Exception:
            self._start_later(failed=True)
            raise

    def _warm_up(self, spark: SparkServer) -> None:
        if any(child.spark is spark for child in self._children.values()):
            return
        if time.monotonic() - spark.started > _START_SECONDS:
            self._retire(spark, f"was not there within {_START_SECONDS:.0f} s")
        elif spark.listens():
            deadline = spark.started + 2 * _START_SECONDS
            self._fork("rehearsal", spark, lambda: at_engine(spark, _rehearse), deadline)

    def _check(self, spark: SparkServer, now: float) -> None:
        """Check memory and liveness while no run uses Spark."""
        if any(child.spark is spark for child in self._children.values()):
            self._probed = now
        elif spark.resident_bytes() > self._heap + _BEYOND_HEAP_BYTES:
            self._retire(spark, f"has grown to {spark.resident_bytes() >> 20:,} MiB")
        elif now - self._probed > _PROBE_EVERY_SECONDS:
            self._probed = now
            config = self._config
            self._fork("probe", spark, lambda: at_engine(spark, lambda: _probe(config)), now + _PROBE_SECONDS)

    def _reap(self) -> None:
        # Wait for each child by id: the exit status of Spark belongs to its own object.
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._ended(self._children.pop(pid), os.waitstatus_to_exitcode(status))

    def _ended(self, child: Child, code: int) -> None:
        spark = child.spark
        if spark is None or code == NOT_BEGUN:
            return
        if code != SUCCEEDED:
            self._retire(spark, f"is not to be relied on after the {child.what}, which ended with {code}")
        elif not spark.ready:
            spark.ready = True
            self._failures, self._probed = 0, time.monotonic()
            self._say(f"ready: Spark is warm, {time.monotonic() - spark.started:.0f} s after its start")

    def _retire(self, spark: SparkServer, why: str) -> None:
        """Give this Spark to no further run; it ends with the last run that uses it."""
        if spark is not self._spark:
            return
        self._say(f"Spark {why}: replacing it")
        self._spark = None
        self._retired.append(spark)
        self._start_later(failed=not spark.ready)
        self._end_retired()

    def _start_later(self, *, failed: bool) -> None:
        """Schedule the next start of Spark: at once, or with backoff after failed starts."""
        self._failures += failed
        self._next_start = time.monotonic() + min(2.0**self._failures - 1, _MAX_PAUSE_SECONDS)

    def _end_retired(self) -> None:
        in_use = [child.spark for child in self._children.values()]
        for spark in [each for each in self._retired if each not in in_use or not each.alive()]:
            spark.end()
            self._retired.remove(spark)

    def _fork(
        self, what: str, spark: SparkServer | None, work: Callable[[], int], deadline: float | None = None
    ) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        engine = os.getpid()
        pid = os.fork()
        if pid:
            self._children[pid] = Child(what=what, spark=spark, deadline=deadline)
            return pid
        code = 1
        try:
            _become_a_process_of_its_own(engine)
            code = work()
        except BaseException:  # noqa: BLE001 (a child must not go on as another engine)
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _kill_children(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)

    def _end_all(self) -> None:
        self._kill_children()
        for pid in self._children:
            os.waitpid(pid, 0)
        for spark in [*self._retired, *([] if self._spark is None else [self._spark])]:
            spark.end()


def _rehearse() -> None:
    from etl_assets.rehearsal import rehearse

    rehearse(SparkSettings())


def _probe(config: Mapping[str, str]) -> None:
    SparkResource(spark_config=dict(config)).spark_session.range(1).collect()


def _become_a_process_of_its_own(engine: int) -> None:
    """Detach the child's signals from the engine's.

    Interrupts from the terminal are for the engine, which lets runs end; those from Dagster are for the run.
    """
    die_with(engine)
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


@contextmanager
def _woken_by_signals() -> Generator[socket.socket]:
    """Yield a socket that receives the number of each signal."""
    woken, waker = socket.socketpair()
    with woken, waker:
        waker.setblocking(False)
        before = {
            number: signal.signal(number, lambda *_: None)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM)
        }
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        try:
            yield woken
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)


def _same_user(connection: socket.socket) -> bool:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return user == os.geteuid()
