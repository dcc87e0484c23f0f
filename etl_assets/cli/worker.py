"""`etl-assets worker`: the resident process that carries new records through as they arrive."""

from __future__ import annotations

import logging
import sys

import click


@click.command(epilog="\b\nExamples:\n  etl-assets worker\n  etl-assets worker --verbose\n")
@click.option("--verbose", is_flag=True, help="Say what each step does, also when all is well.")
def worker(verbose: bool) -> None:
    """Carry new records through as soon as they arrive, until SIGTERM or SIGINT.

    One process with a warm Spark session; the sensors of sources start no runs while it lives. What it does
    is reported to Dagster. Errors are retried and written to alerts.jsonl; the process ends when it cannot go
    on by itself, to be started again by its supervisor.
    """
    from etl_assets.settings import expect_landing_folder, load_settings
    from etl_assets.worker.reports import Dagster
    from etl_assets.worker.worker import Worker

    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    logging.getLogger("etl_assets").setLevel(logging.INFO if verbose else logging.WARNING)
    settings = load_settings()
    if settings.catalog().reads_landing:
        expect_landing_folder(settings)
        settings.landing_path.mkdir(parents=True, exist_ok=True)
    Worker(settings, Dagster(settings).take).run()
