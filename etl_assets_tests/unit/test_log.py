"""Entries of a table's log, as they lie in its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etl_assets.delta.log import commit_notes, entry_path, read_entry

# `str.splitlines` ends lines at these, JSON texts may hold them as they are.
ENDS_FOR_PYTHON_ONLY = "\x85\u2028\u2029"


@pytest.mark.parametrize("end", ENDS_FOR_PYTHON_ONLY, ids=ascii)
def test_a_line_of_an_entry_ends_only_where_json_lines_do(tmp_path: Path, end: str):
    stats = json.dumps({"numRecords": 1, "maxValues": {"order_id": f"{end}a"}}, ensure_ascii=False)
    info = {"commitInfo": {"operation": f"by {end}", "timestamp": 0}}
    add = {"add": {"path": f"{end}.parquet", "stats": stats}}
    entry = entry_path(tmp_path, 0)
    entry.parent.mkdir()
    # As Delta writes them: what is not ASCII is not escaped.
    text = "".join(f"{json.dumps(action, ensure_ascii=False)}\n" for action in (info, add))
    entry.write_text(text, "utf-8")
    read = read_entry(tmp_path, 0)
    assert [(file.path, file.rows) for file in read.added] == [(f"{end}.parquet", 1)]
    assert read.operation == f"by {end}"
    assert [note.version for note in commit_notes(tmp_path, 0)] == [0]
