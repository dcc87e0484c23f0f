"""Batches of changes for property tests, and pipelines whose tables apply them in different layouts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from etl_assets_tests.reference.declared_pipeline import CHANGES, delete, truncate, upsert

CITIES = st.sampled_from(["a", "b", None])
TIMES = st.sampled_from(["2026-01-31T23:59:59Z", "2026-02-01T00:00:00Z", None])
LAYOUTS: dict[str, Any] = {
    "not laid out": None,
    "by a text": "city",
    "by a key": "id",
    "by an hour": {"column": "seen_at", "by": "hour"},
    "by a day": {"column": "seen_at", "by": "day"},
}


def changes_in(layout: str) -> dict[str, Any]:
    """The declaration of a table that applies changes, laid out in one of `LAYOUTS`."""
    return {
        **CHANGES,
        "columns": {**CHANGES["columns"], "city": "string", "seen_at": "timestamp"},
        "table": {**CHANGES["table"], "partition_by": LAYOUTS[layout]},
    }


def batches(*, keys: int, sizes: tuple[int, int], number: int) -> st.SearchStrategy[list[list[Any]]]:
    """Batches with ties, repeats, late changes and records of other forms."""
    key, at = st.sampled_from([f"k{each}" for each in range(keys)]), st.integers(0, 9)
    full = st.builds(
        lambda record, city, seen: {**record, "city": city, "seen_at": seen},
        st.builds(upsert, key, at, st.integers(0, 99)),
        CITIES,
        TIMES,
    )
    odd = st.builds(lambda record: {**record, "changed_at": str(record["changed_at"])}, full)
    gone = st.builds(delete, key, at)
    change = st.one_of(full, full, full, gone, gone, odd, st.builds(truncate, st.integers(0, 4)))
    return st.lists(st.lists(change, min_size=sizes[0], max_size=sizes[1]), min_size=number, max_size=number)
