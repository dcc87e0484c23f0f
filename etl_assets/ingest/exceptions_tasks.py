"""Tasks for the exceptions of a batch: which blocks one worker takes.

Does not belong here: what a task writes (`raw_exceptions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from etl_assets.ingest.located_blocks import LocatedBlock

LINES_PER_TASK = 100_000
"""Lines in blocks with exceptions after which a task ends with its day.

So there are few more files than days, and still several tasks to distribute.
"""
EXCEPTIONS_PER_FILE = 500_000
"""About how many exceptions a task has, even within one day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionsTask:
    """Blocks with exceptions, in source order."""

    blocks: tuple[LocatedBlock, ...]

    @property
    def exceptions(self) -> int:
        """Number of exceptions of the blocks."""
        return sum(block.exceptions for block in self.blocks)


def exceptions_tasks(
    blocks: Iterable[LocatedBlock],
    lines_a_task: int = LINES_PER_TASK,
    exceptions_a_file: int = EXCEPTIONS_PER_FILE,
) -> Iterator[ExceptionsTask]:
    """Cut blocks, in source order, into tasks of whole days, or of parts of a day with very many exceptions.

    Blocks without exceptions are left out.
    """
    held: list[LocatedBlock] = []
    lines = exceptions = 0
    for block in blocks:
        if not block.exceptions:
            continue
        ends = bool(held) and block.day != held[-1].day and lines >= lines_a_task
        if ends or (held and exceptions + block.exceptions > exceptions_a_file):
            yield ExceptionsTask(blocks=tuple(held))
            held, lines, exceptions = [], 0, 0
        held.append(block)
        lines += block.staged.lines
        exceptions += block.exceptions
    if held:
        yield ExceptionsTask(blocks=tuple(held))
