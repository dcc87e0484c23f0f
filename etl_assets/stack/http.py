"""Whether a server answers a request over HTTP."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException

from etl_assets.stack.server import HOST

_ANSWER_SECONDS = 5


def answers(port: int, path: str) -> bool:
    """Return whether a server of this machine answers a GET with 200. Asks no proxy."""
    connection = HTTPConnection(HOST, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
