"""Bulk requests: lines to the engine, and what became of each.

Belongs here: the size of requests, which items are sent again, and the meaning of an item's status. Does not
belong here: the lines (`documents.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sinks.search.client import SearchClient, error_text
from etl_assets.sinks.search.index import HeldIndex, SearchIndex

if TYPE_CHECKING:
    import pyarrow as pa

MAX_REQUEST_BYTES = 8 * 1024 * 1024
"""An engine takes 100 MB, and works best with 5 to 15."""
_ANSWER = (
    "errors,items.*.status,items.*.result,items.*.error.type,items.*.error.reason,items.*.error.caused_by"
)
_TOO_LARGE = 413
_BUSY = frozenset({429, 502, 503, 504})


@dataclass(slots=True)
class Outcomes:
    """What became of the lines of one call, by their positions.

    Attributes:
        created: Documents that were not there.
        updated: Documents that were replaced.
        newer: Lines that found a newer document, which stays.
        refused: The engine's words on each line that it never takes; None for one that is too large.
    """

    created: int = 0
    updated: int = 0
    newer: int = 0
    refused: dict[int, str | None] = field(default_factory=dict)


class BulkWriter:
    """Writes lines through the writers' alias of an index."""

    def __init__(self, client: SearchClient, index: SearchIndex, held: HeldIndex) -> None:
        self._client = client
        self._index = index
        self._held = held

    def write(self, lines: pa.Array) -> Outcomes:
        """Write lines in as many requests as their size needs.

        Raises:
            SinkUnavailable: the engine does not answer, or still refuses some for now after all attempts.
            SinkFenced: the alias is gone, because another writer has delivered the whole table.
        """
        outcomes = Outcomes()
        for start, stop in _cuts(lines):
            self._write(lines, list(range(start, stop)), outcomes)
        return outcomes

    def _write(self, lines: pa.Array, positions: list[int], outcomes: Outcomes) -> None:
        patience = self._client.patience
        why = ""
        for attempt in range(patience.attempts):
            if attempt:
                self._client.sleep(patience.delay(attempt - 1, self._client.dice))
            positions, why = self._once(lines, positions, outcomes)
            if not positions:
                return
        self._client.unavailable(why)

    def _once(self, lines: pa.Array, positions: list[int], outcomes: Outcomes) -> tuple[list[int], str]:
        """Send some lines; return those that have to be sent again, and why."""
        answer = self._client.send(
            "POST",
            f"/{self._held.writers_alias}/_bulk",
            _body(lines, positions),
            params={"require_alias": "true", "filter_path": _ANSWER},
        )
        failpoint(Failpoint.SEARCH_AFTER_REQUEST)
        if answer.status == _TOO_LARGE:
            self._halve(lines, positions, outcomes)
            return [], ""
        if not answer.ok:
            self._client.refused(f"a bulk request was refused: {answer.error}", fix="see the engine's log")
        again: list[int] = []
        why = ""
        for position, item in zip(positions, answer.body["items"], strict=True):
            if reason := self._note(position, item["index"], outcomes):
                again.append(position)
                why = reason
        return again, why

    def _note(self, position: int, result: Mapping[str, Any], outcomes: Outcomes) -> str:
        """Note what became of a line; return why it has to be sent again, or an empty text."""
        status = result["status"]
        if status < 300:
            if result.get("result") == "created":
                outcomes.created += 1
            else:
                outcomes.updated += 1
            return ""
        error = error_text(result.get("error"))
        if status == 409:
            outcomes.newer += 1
        elif status == 404:
            self._index.fenced(error)
        elif status in _BUSY or status >= 500 or "cluster_block" in error:
            return f"{status}: {error}"
        elif status in (401, 403):
            self._client.refused(f"not allowed: {error}", fix="give the connection's user the right to write")
        else:
            outcomes.refused[position] = error
        return ""

    def _halve(self, lines: pa.Array, positions: list[int], outcomes: Outcomes) -> None:
        if len(positions) == 1:
            outcomes.refused[positions[0]] = None
            return
        middle = len(positions) // 2
        self._write(lines, positions[:middle], outcomes)
        self._write(lines, positions[middle:], outcomes)


def _body(lines: pa.Array, positions: list[int]) -> bytes:
    """Return lines as one body. Those that follow each other lie so in Arrow's memory already."""
    import pyarrow as pa

    if positions[-1] - positions[0] + 1 != len(positions):
        lines, positions = lines.take(pa.array(positions)), list(range(len(positions)))
    ends = _ends(lines)
    first, last = int(ends[positions[0]]), int(ends[positions[-1] + 1])
    return lines.buffers()[2].slice(first, last - first).to_pybytes()


def _ends(lines: pa.Array) -> np.ndarray:
    """Return where lines begin in the memory of their texts, and where the last one ends."""
    return np.frombuffer(lines.buffers()[1], dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]


def _cuts(lines: pa.Array) -> Iterator[tuple[int, int]]:
    """Yield the first and the last position (exclusive) of the lines of each request."""
    ends = _ends(lines)
    start = 0
    while start < len(lines):
        limit = int(ends[start]) + MAX_REQUEST_BYTES
        stop = max(start + 1, int(np.searchsorted(ends, limit, side="right")) - 1)
        yield start, min(stop, len(lines))
        start = stop
