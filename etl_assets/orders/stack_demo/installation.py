"""The example as an installation in a home folder: its files, and the ports that its servers have.

Belongs here: files. What a user has changed in them stays, but for the ports. Does not belong here: servers
(`stack/full.py`), and what is in them (`contents.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from etl_assets.delta.log.durability import write_durably
from etl_assets.stack.platform_ports import with_ports

_SUFFIX = ".yaml"
_START = "start_date: 2026-01-01"


def pipeline_names() -> tuple[str, ...]:
    """Return the names of the example's pipelines."""
    return tuple(name.removesuffix(_SUFFIX) for name, _ in _texts("pipelines"))


def write_example(home: Path, ports: Mapping[str, int], today: dt.date) -> None:
    """Write the files of the example that are not there, and correct the ports in its platform file.

    Args:
        home: The demo's home folder.
        ports: The ports of the servers.
        today: The first partition of a new installation.
    """
    for name, text in _texts("pipelines"):
        if not (file := home / "pipelines" / name).exists():
            write_durably(file, text.encode())
    (home / "exports").mkdir(exist_ok=True)
    file = home / "platform.yaml"
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        (text,) = (text for name, text in _texts() if name == file.name)
        text = text.replace(_START, f"start_date: {today}")
    corrected = with_ports(text, ports)
    if not file.exists() or corrected != text:
        write_durably(file, corrected.encode())


def _texts(*folders: str) -> Iterator[tuple[str, str]]:
    place: Traversable = files("etl_assets.orders.stack_demo.example")
    for each in folders:
        place = place / each
    for file in sorted(place.iterdir(), key=lambda each: each.name):
        if file.name.endswith(_SUFFIX):
            yield file.name, file.read_text("utf-8")
