"""The ports of a stack's servers in a demo's platform file.

Belongs here: correcting them where they are in use. Does not belong here: writing the file, and choosing
ports (`full.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import yaml

_ADDRESS = re.compile(r"(?:(?:http://)?127\.0\.0\.1:)?(\d+)")
_PLACES = (
    ("kafka", "connections", "events", "bootstrap_servers"),
    ("postgres", "connections", "shop", "port"),
    ("opensearch", "connections", "search", "urls"),
    ("s3", "connections", "lake", "endpoint"),
    ("http", "serve", "port"),
)
"""Where the platform file has the port of each server."""


def with_ports(text: str, ports: Mapping[str, int]) -> str:
    """Return the platform file with other ports of this machine; the rest of the text stays as it is."""
    new = {former: str(ports[name]) for name, former in _ports_in(text) if name in ports}
    if not new:
        return text
    return re.sub(rf"\b(?:{'|'.join(new)})\b", lambda found: new[found[0]], text)


def _ports_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the ports of the servers that a platform file has. Connections that a user took out have none."""
    content = yaml.safe_load(text)
    for name, *path in _PLACES:
        value = content
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        address = str(value[0] if isinstance(value, list) and value else value)
        if found := _ADDRESS.fullmatch(address):
            yield name, found[1]
