"""Headers between a browser and Dagster's webserver.

Only known headers of a request are passed on, so that no cookie, token or forwarded address reaches the
webserver. Of an answer everything is passed on but what belongs to the connection, and cookies, which would
be cookies of this server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from etl_assets.settings.ui import PATH_PREFIX

PASSED_ON = (
    "accept",
    "accept-encoding",
    "accept-language",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "range",
    "user-agent",
)
_OF_THE_CONNECTION = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OF_THIS_SERVER = frozenset(
    {"alt-svc", "date", "server", "set-cookie", "set-cookie2", "strict-transport-security"}
)
_SCRIPTS_OF_ITS_OWN = (f"{PATH_PREFIX}/graphql",)
"""Pages of Dagster with scripts and without a policy of their own."""


def for_webserver(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request that the webserver gets."""
    found = {name: headers[name] for name in PASSED_ON if name in headers}
    return {"accept-encoding": "identity", **found}


def for_browser(headers: Iterable[tuple[str, str]], path: str, address: str) -> dict[str, str]:
    """Return the headers of an answer that the browser gets.

    A page without a policy of its own, such as a notebook, may run no scripts: they could do what the person
    who looks at it may do.

    Args:
        headers: Those of the webserver's answer.
        path: Path of the request.
        address: Address of the webserver, which a redirect may name.
    """
    given = [(name.lower(), value) for name, value in headers]
    of_connection = {
        each.strip().lower() for name, value in given if name == "connection" for each in value.split(",")
    }
    dropped = _OF_THE_CONNECTION | _OF_THIS_SERVER | of_connection
    found = {name: value for name, value in given if name not in dropped}
    if found.get("location", "").startswith(f"{address}/"):
        found["location"] = found["location"].removeprefix(address)
    is_page = found.get("content-type", "").startswith(("text/html", "image/svg", "application/xhtml"))
    if is_page and path not in _SCRIPTS_OF_ITS_OWN:
        found.setdefault("content-security-policy", "sandbox")
    found.setdefault("cache-control", "private")
    return {**found, "x-frame-options": "SAMEORIGIN", "x-content-type-options": "nosniff"}
