"""A worker on a fresh platform with everything on, until all that is landed has become warehouse rows.

Notes when each commit of warehouse_rows was acknowledged: when its step had returned, after fsync.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.steady_land import READY

ACKNOWLEDGED = "acknowledged.json"
_POLL_SECONDS = 0.1


def main() -> None:
    from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
    from etl_assets.settings import Settings
    from etl_assets.steps.step import INSERTED, StepReport
    from etl_assets.worker.reports import Dagster
    from etl_assets.worker.worker import Worker

    told = arguments()
    home = Path(told["home"])
    settings = Settings.model_validate({**told["settings"], "home": home})
    settings.landing_path.mkdir(parents=True, exist_ok=True)
    acknowledged: dict[int, float] = {}
    rows = [0]

    def heard(table: str, report: StepReport) -> None:
        if table == WAREHOUSE_ROWS.name and report.commits:
            acknowledged[report.version] = time.monotonic()
            rows[0] += report.total()[INSERTED]

    def watch() -> None:
        (home / READY).touch()
        _until(lambda: rows[0] >= told["warm_events"])
        mark("warm")
        _until(lambda: rows[0] >= told["events"])
        mark("done", rows=rows[0])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    Worker(settings, Dagster(settings).take, heard=heard).run()
    (home / ACKNOWLEDGED).write_text(json.dumps(acknowledged))
    mark("left")


def _until(reached: Callable[[], bool]) -> None:
    while not reached():
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    main()
