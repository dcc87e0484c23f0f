"""The example as an installation in a home folder. Of its files only the port is changed later.

Belongs here: files. Does not belong here: the server (`stack/full.py`), and what is in it (`shop.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from etl_assets.delta.log.durability import write_durably
from etl_assets.stack.platform_ports import with_ports

CAPTURE = "shop"
_START = "start_date: 2026-01-01"


def write_example(home: Path, ports: Mapping[str, int], today: dt.date) -> None:
    """Write the files of the example that are not there, and correct the port in its platform file.

    Args:
        home: The demo's home folder.
        ports: The ports of the servers.
        today: The first partition of a new installation.
    """
    example = files("etl_assets.stack.cdc_demo.example")
    name = f"captures/{CAPTURE}.yaml"
    if not (file := home / name).exists():
        write_durably(file, example.joinpath(name).read_bytes())
    file = home / "platform.yaml"
    before = file.read_text("utf-8") if file.exists() else ""
    text = before or example.joinpath(file.name).read_text("utf-8").replace(_START, f"start_date: {today}")
    corrected = with_ports(text, ports)
    if corrected != before:
        write_durably(file, corrected.encode())
