"""Markdown tables for the pages that are written from the code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def markdown_table(header: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    """The lines of a table, and an empty one after it."""
    yield _row(header)
    yield _row(["---"] * len(header))
    for row in rows:
        yield _row(row)
    yield ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
