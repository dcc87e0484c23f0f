"""Where a request of a browser comes from: a page of this server, or one of another site.

The browser names it in `Origin`, which no script can set. A cookie alone says nothing: `SameSite` counts
other ports and subdomains of a site as the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def is_of_own_page(headers: Mapping[str, str]) -> bool:
    """Return whether `Origin` has the host and port that the request was sent to.

    The scheme is not compared: TLS may end in a proxy before the server.
    """
    parts = urlsplit(headers.get("origin", ""))
    port = _DEFAULT_PORTS.get(parts.scheme)
    if port is None or not parts.netloc:
        return False
    return parts.netloc.lower().removesuffix(port) == headers.get("host", "").lower().removesuffix(port)
