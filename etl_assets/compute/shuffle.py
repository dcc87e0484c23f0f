"""Work in two passes: tasks send rows to parts, and the rows of each part are worked on together.

Rows travel as Arrow streams in a binary column. Spark's shuffle moves them without looking into them, which
costs less than half of what rows of Spark cost (docs/decisions/0033-a-fold-without-merge.md). Little work is
done in this process, by the same functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from etl_assets.compute.worker_tasks import in_workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
_PIECE = "part INT, kind STRING, content BINARY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What a task sends to a part.

    Attributes:
        part: Number of the part.
        kind: What it is, for the receiver.
        content: Bytes, such as `packed` rows.
    """

    part: int
    kind: str
    content: bytes


def packed(rows: pa.RecordBatch) -> bytes:
    """Return rows as a compressed Arrow stream."""
    import pyarrow as pa

    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.BufferOutputStream() as sink:
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_batch(rows)
        return sink.getvalue().to_pybytes()


def unpacked(pieces: Iterable[Piece], kind: str) -> list[pa.Table]:
    """Return the rows of those pieces that have a kind."""
    import pyarrow as pa

    return [pa.ipc.open_stream(piece.content).read_all() for piece in pieces if piece.kind == kind]


def figures_by_part(
    session: Callable[[], SparkSession],
    tasks: Sequence[Task],
    send: Callable[[Task], Iterable[Piece]],
    work: Callable[[Sequence[Piece]], Iterable[pa.RecordBatch]],
    *,
    parts: int,
    schema: str,
    is_little: bool,
) -> list[dict[str, Any]]:
    """Run `send` on each task and `work` on the pieces of each part, and return the rows that `work` yields.

    Args:
        session: Returns the session; not called for little work.
        tasks: Values that can be pickled; the workers have this package.
        send: Yields the pieces of a task. An attempt that is repeated sends the same rows.
        work: Gets all pieces of a part that has some. They are in memory together.
        parts: How many parts there are. A single one is worked on in this process.
        schema: Schema of the rows that `work` yields, as Spark's DDL.
        is_little: Whether this process does it all, with all pieces in memory.
    """
    if is_little:
        return _in_process((piece for task in tasks for piece in send(task)), work)

    def sent(task: Task) -> Iterator[pa.RecordBatch]:
        for piece in send(task):
            yield _as_row(piece)

    def work_on_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if pieces := [Piece(**row) for batch in batches for row in batch.to_pylist()]:
            yield from work(pieces)

    pieces = in_workers(session(), tasks, sent, _PIECE)
    if parts == 1:  # There is nothing to distribute, and the part fits into any process.
        return _in_process((Piece(**row.asDict()) for row in pieces.collect()), work)
    found = pieces.repartitionById(parts, "part").mapInArrow(work_on_part, schema)
    return [row.asDict() for row in found.collect()]


def _in_process(
    pieces: Iterable[Piece], work: Callable[[Sequence[Piece]], Iterable[pa.RecordBatch]]
) -> list[dict[str, Any]]:
    by_part: defaultdict[int, list[Piece]] = defaultdict(list)
    for piece in pieces:
        by_part[piece.part].append(piece)
    # Taken out one after another, so that a part's pieces are let go of with its result.
    return [row for part in sorted(by_part) for batch in work(by_part.pop(part)) for row in batch.to_pylist()]


def _as_row(piece: Piece) -> pa.RecordBatch:
    import pyarrow as pa

    types = {"part": pa.int32(), "kind": pa.string(), "content": pa.binary()}
    return pa.RecordBatch.from_pylist([asdict(piece)], schema=pa.schema(types.items()))
