"""A worker in a process of its own, on the engine of the test: a JVM for each would cost more than
everything else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from etl_assets_tests.kill.dying_run import Gateway, attached_session


def follow(environment: Mapping[str, str], log: Path, gateway: Gateway) -> None:
    """Follow until a signal or a failpoint."""
    os.environ.update(environment)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    attached_session(gateway)
    from etl_assets.settings import load_settings
    from etl_assets.worker.reports import Dagster
    from etl_assets.worker.worker import Worker

    settings = load_settings()
    Worker(settings, Dagster(settings).take).run()
