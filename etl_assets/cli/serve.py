"""`etl-assets serve`: the HTTP server."""

from __future__ import annotations

import logging
import sys

import click


@click.command(epilog="\b\nExamples:\n  etl-assets serve\n  etl-assets serve --host 10.0.0.5 --port 8443\n")
@click.option("--host", metavar="ADDRESS", help="Address to listen on (serve.host).")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on (serve.port); 0: any.")
def serve(host: str | None, port: int | None) -> None:
    """Take events over HTTP for pipelines with `source: {type: http}`, until SIGTERM or SIGINT.

    Events are durable when they are answered; `etl-assets run`, the worker or the sensors read them. Clients
    need a token (`etl-assets tokens add`).
    """
    from etl_assets.errors import RuntimeMissing
    from etl_assets.settings import load_settings

    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("etl_assets").setLevel(logging.INFO)
    try:
        from etl_assets.serve.server import run_server
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "starlette", "websockets"):
            raise
        raise RuntimeMissing(
            f"the server needs the package {error.name}", fix="pip install 'etl-assets[serve]'"
        ) from error
    settings = load_settings()
    run_server(settings, host or settings.serve.host, settings.serve.port if port is None else port)
