"""Settings of the HTTP server (`etl-assets serve`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from etl_assets.settings.oidc import OidcSettings
from etl_assets.settings.section import Section
from etl_assets.settings.ui import UiSettings


class ServeSettings(Section):
    """The HTTP server (`etl-assets serve`)."""

    host: Annotated[str, Field(description="address to listen on; the default is this machine only")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Field(ge=1, le=65_535, description="port to listen on")] = 8_080
    tls_certificate: Annotated[
        Path | None, Field(description="PEM file; relative to the home folder; without it there is no TLS")
    ] = None
    tls_key: Annotated[Path | None, Field(description="PEM file of the certificate's private key")] = None
    group_commit_seconds: Annotated[
        float,
        Field(
            ge=0.001, le=1, description="requests that arrive within this time share one file and one fsync"
        ),
    ] = 0.05
    write_timeout_seconds: Annotated[
        float, Field(ge=0.1, le=60, description="how long a majority of the domains may take to store a file")
    ] = 5.0
    max_body_bytes: Annotated[
        int, Field(ge=1_024, le=1_073_741_824, description="longest body of a request, decompressed")
    ] = 16_777_216
    max_events_per_request: Annotated[
        int, Field(ge=1, le=1_000_000, description="most events of a request")
    ] = 10_000
    max_waiting_bytes: Annotated[
        int, Field(ge=1_048_576, description="bodies in memory; with more, requests are refused (503)")
    ] = 134_217_728
    max_requests: Annotated[
        int, Field(ge=1, description="requests at one time; with more, they are refused (503)")
    ] = 1_000
    max_connections: Annotated[
        int, Field(ge=1, description="connections at one time; more are closed at once")
    ] = 2_000
    events_per_second: Annotated[
        float, Field(gt=0, description="rate of each token; above it requests are refused (429)")
    ] = 50_000.0
    header_timeout_seconds: Annotated[
        float, Field(ge=0.1, le=600, description="how long the head of a request may take")
    ] = 10.0
    body_timeout_seconds: Annotated[
        float,
        Field(
            ge=0.1,
            le=3600,
            description="how long the body of a request may take, and a client to take its answer",
        ),
    ] = 30.0
    commit_timeout_seconds: Annotated[
        float,
        Field(
            ge=0.1,
            le=3600,
            description="longest wait of a request with `ack=committed`, and the default of its `timeout`",
        ),
    ] = 30.0
    max_commit_waits: Annotated[
        int,
        Field(
            ge=1,
            description="requests with `ack=committed` at one time; more are refused (503), and of one client"
            " more than half of them (429)",
        ),
    ] = 500
    max_keys: Annotated[
        int, Field(ge=1, description="number of last `Idempotency-Key`s that are remembered")
    ] = 100_000
    oidc: Annotated[
        OidcSettings | None,
        Field(description="tokens of an OpenID Connect issuer; by default only those of `etl-assets tokens`"),
    ] = None
    ui: Annotated[
        UiSettings | None,
        Field(description="the Dagster UI at `/ui/`, behind the login; by default it is not served"),
    ] = None
    keep_journal_days: Annotated[
        int, Field(ge=1, le=366, description="journal files that were read are removed after this many days")
    ] = 2
