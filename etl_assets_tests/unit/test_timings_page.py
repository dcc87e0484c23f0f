"""docs/timings.md says what the code does."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from etl_assets.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "timings.md"
ROW = re.compile(
    r"^\| .+ \| (?P<seconds>[0-9.]+) \| (?P<setting>setting )?`(?P<name>[\w.]+)` \|$", re.MULTILINE
)
ROWS = [
    (row["name"], row["setting"] is not None, float(row["seconds"])) for row in ROW.finditer(PAGE.read_text())
]


def test_every_row_of_a_table_is_compared():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    headers = sum(line == "| what | seconds | where |" for line in rows)
    assert len(rows) - 2 * headers == len(ROWS) > 20


@pytest.mark.parametrize(("name", "is_setting", "seconds"), ROWS, ids=[row[0] for row in ROWS])
def test_a_timing_is_what_the_page_says(name, is_setting, seconds, tmp_path):
    if is_setting:
        section, field = name.split(".")
        value = getattr(getattr(Settings(home=tmp_path), section), field)
    else:
        module, constant = name.rsplit(".", 1)
        value = getattr(importlib.import_module(module), constant)
    assert float(value) == seconds
