"""The alert file: `<home>/alerts.jsonl`, one line for whatever somebody should look at. Holds no row values."""

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path


def write_alert(home: Path, alert: Mapping[str, str]) -> None:
    """Append a line; `at` is added."""
    home.mkdir(parents=True, exist_ok=True)
    line = {"at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), **alert}
    with (home / "alerts.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
