"""A worker that follows a topic into PostgreSQL and a search index, until it is told that all has arrived.

Files in the home folder are the signals: `READY` of this script, `WARM` and `DONE` of the one that produces.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments

READY, WARM, DONE = "ready", "warm", "done"
_POLL_SECONDS = 0.1


def main() -> None:
    from etl_assets.settings import load_settings
    from etl_assets.worker.reports import Dagster
    from etl_assets.worker.worker import Worker

    home = Path(arguments()["home"])
    settings = load_settings({"ETL_ASSETS_HOME": str(home)})

    def watch() -> None:
        (home / READY).touch()
        for name in (WARM, DONE):
            while not (home / name).exists():
                time.sleep(_POLL_SECONDS)
            mark(name)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    Worker(settings, Dagster(settings).take).run()
    mark("left")


if __name__ == "__main__":
    main()
