"""http: events over HTTP that are durable when they are answered, in batches of 100 by 16 clients, and the
latency at a steady 2,000 events a second, beside a FastAPI handler by hand that fsyncs each batch.
"""

from __future__ import annotations

import datetime as dt
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cases.bulk import WrongRows
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.http_load import HURRIED, STEADY

CASE = "http"
SECONDS_TARGET = 1.0
"""Of 10,000 events: 10,000 events a second."""
P99_MILLISECONDS_TARGET = 250.0
OURS, OTHER = "platform", "by hand"
_EVENTS = 10_000
_SECONDS = 20
_PIPELINE = "films"


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    work, seconds = options.folder / CASE, min(_SECONDS, options.seconds)
    measured = interleaved(
        options.runs,
        {
            OURS: lambda: _platform(empty_folder(work / "home"), seconds),
            OTHER: lambda: _by_hand(empty_folder(work / "hand"), seconds),
        },
    )
    shutil.rmtree(work, ignore_errors=True)
    return _figures(measured[OURS], measured[OTHER])


def _figures(ours: list[Measured], other: list[Measured]) -> list[Figure]:
    load = median([*ours, *other], lambda run: run.load)

    def of(mark: str, figure: Callable[[dict[str, Any]], float]) -> Callable[[Measured], float]:
        return lambda run: figure(dict(run.marks[mark].figures))

    seconds = of(HURRIED, lambda found: found["seconds"] / found["events"] * _EVENTS)
    p99 = of(STEADY, lambda found: found["p99_ms"])
    beside = {
        "seconds_of_10000_events": seconds,
        "server_cpu_seconds_of_10000_events": of(
            HURRIED, lambda found: found["cpu_seconds"] / found["events"] * _EVENTS
        ),
        "server_resident_mib": of(HURRIED, lambda found: found["resident_bytes"] / (1 << 20)),
        "steady_p50_milliseconds": of(STEADY, lambda found: found["p50_ms"]),
        "steady_p99_milliseconds": p99,
    }
    return [
        figure(CASE, "seconds_for_10000_events", median(ours, seconds), load=load, target=SECONDS_TARGET),
        figure(CASE, "p99_milliseconds", median(ours, p99), load=load, target=P99_MILLISECONDS_TARGET),
        *(
            figure(CASE, f"{name}_beside_by_hand", median(ours, one), median(other, one), load=load)
            for name, one in beside.items()
        ),
    ]


def _platform(home: Path, seconds: float) -> Measured:
    import yaml

    from etl_assets.environment import HOME
    from etl_assets.serve.tokens import Tokens

    columns = {"id": "bigint", "film": "string", "stars": "int"}
    pipeline = {"name": _PIPELINE, "source": {"type": "http", "id": ["id"]}, "columns": columns}
    (home / "pipelines").mkdir()
    (home / "pipelines" / f"{_PIPELINE}.yaml").write_text(
        yaml.safe_dump({**pipeline, "table": {"keys": ["id"]}}), "utf-8"
    )
    (home / "platform.yaml").write_text(
        # The limit of one token is no part of what is measured.
        yaml.safe_dump({"pipelines": {"built_in": []}, "serve": {"events_per_second": 1_000_000}}),
        "utf-8",
    )
    _, token = Tokens(home).add("bench", now=dt.datetime.now(dt.UTC))
    port = free_port()
    measured = _measured(
        command=[sys.executable, "-m", "etl_assets.cli.main", "serve", "--port", str(port)],
        environment={HOME.name: str(home)},
        url=f"http://127.0.0.1:{port}/v1/pipelines/{_PIPELINE}/events",
        token=token,
        seconds=seconds,
    )
    return _whole(measured, sum(_lines(path) for path in (home / "data" / "journal").rglob("*.jsonl")))


def _by_hand(folder: Path, seconds: float) -> Measured:
    file, token, port = folder / "events.jsonl", "secret", free_port()
    measured = _measured(
        command=[sys.executable, "-m", "benchmarks.scripts.http_by_hand", str(file), token, str(port)],
        environment={},
        url=f"http://127.0.0.1:{port}/events",
        token=token,
        seconds=seconds,
    )
    return _whole(measured, _lines(file))


def _measured(**told: Any) -> Measured:
    return run_script("http_load", told, script_environment())


def _whole(measured: Measured, stored: int) -> Measured:
    if stored != (sent := measured.marks[STEADY].figures["events"]):
        raise WrongRows(f"{sent:,} events were acknowledged, and {stored:,} are stored")
    return measured


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def free_port() -> int:
    """Return a port of the loopback address that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
