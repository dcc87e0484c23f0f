"""A process of the test of several control planes and runners: `runner` or `client`, over one store.

A runner holds a kernel lock on a file while it carries a run, so that two at once are noticed even when
one is killed.
"""

from __future__ import annotations

import fcntl
import os
import random
import sys
import time
from pathlib import Path

from etl_assets.control.run_controls import RunControls
from etl_assets.control.states import ControlState
from etl_assets.control.store import open_store
from etl_assets.errors import LeaseLost, TransitionRefused
from etl_assets.settings import Settings

PIPELINES = ("p", "q")
LEASE_SECONDS = 1.0


def runner(controls: RunControls, folder: Path) -> None:
    name = f"runner {os.getpid()}"
    while True:
        lease = controls.claim(name)
        if lease is None:
            time.sleep(0.03)
            continue
        with (folder / f"{lease.pipeline}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _say(folder, "twice", f"{lease.pipeline} {lease.token}")
                continue
            _carry(controls, lease, folder)


def _carry(controls, lease, folder: Path) -> None:
    state = controls.heartbeat(lease)
    try:
        for _ in range(3):
            if state is not ControlState.RUNNING:
                controls.stop(lease)
                return
            time.sleep(0.04)
            state = controls.report_progress(lease, batches=1, rows_committed=10, seconds=0.04)
        controls.finish(lease)
    except TransitionRefused:  # a pause that was withdrawn
        controls.release(lease)
    except LeaseLost:
        _say(folder, "lost", f"{lease.pipeline} {lease.token}")


def client(controls: RunControls, folder: Path, number: int) -> None:
    chance = random.Random(number)
    for _ in range(10):
        pipeline = chance.choice(PIPELINES)
        _say(folder, "asked", controls.request_run(pipeline, f"client {number}").id)
        time.sleep(chance.uniform(0, 0.15))
        if chance.random() < 0.4:
            controls.pause(pipeline, f"client {number}")
            time.sleep(chance.uniform(0, 0.2))
            controls.resume(pipeline, f"client {number}")


def _say(folder: Path, name: str, text: str) -> None:
    with (folder / name).open("a") as file:
        file.write(f"{text}\n")


def main(role: str, folder: Path, number: int) -> None:
    settings = Settings.model_validate_json((folder / "settings.json").read_text("utf-8"))
    controls = RunControls(open_store(settings), lease_seconds=LEASE_SECONDS)
    if role == "runner":
        runner(controls, folder)
    else:
        client(controls, folder, number)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
