"""Settings of the Dagster UI behind the login of `etl-assets serve`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from etl_assets.settings.loopback import is_loopback
from etl_assets.settings.section import Section

PATH_PREFIX = "/ui"
"""Path under which the UI is served, and `--path-prefix` of the webserver."""


def _loopback(value: str) -> str:
    parts = urlsplit(value)
    host = parts.hostname or ""
    try:
        has_port = parts.port is not None
    except ValueError:
        has_port = False
    # A name is not taken: what it leads to is up to the resolver.
    if parts.scheme != "http" or host == "localhost" or not is_loopback(host) or not has_port:
        raise ValueError(
            "it is not an `http://` address of this machine with a port, such as `http://127.0.0.1:3000`; a"
            " webserver that others can reach has no login"
        )
    if parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"an address has only a host and a port; its path is always `{PATH_PREFIX}`")
    return f"http://{parts.netloc}"


class UiSettings(Section):
    """The Dagster UI at `/ui/` of `etl-assets serve`, behind its login."""

    address: Annotated[
        str,
        AfterValidator(_loopback),
        Field(
            examples=["http://127.0.0.1:3000"],
            description="loopback address of Dagster's webserver, which runs with `--path-prefix /ui`;"
            " `etl-assets dev` starts it so when this is set",
        ),
    ]
    answer_timeout_seconds: Annotated[
        float,
        Field(ge=1, le=3_600, description="how long the webserver may take for an answer, or its next part"),
    ] = 60.0
    max_websockets: Annotated[
        int, Field(ge=1, description="websockets of open pages at one time; more are refused (503)")
    ] = 200
