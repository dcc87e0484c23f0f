"""Rows among those read as columns that are not plain: they are read again, as lines of JSON.

Belongs here: which rows they are. Does not belong here: what is plain (`typed_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.arrow_calls import call
from etl_assets.sources.sql.bounds import Key, Pair
from etl_assets.sources.sql.postgres_text import row_of, text_of
from etl_assets.sources.sql.typed_rows import IS_PLAIN, MAX_OTHERS, TypedRows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True, kw_only=True)
class OtherRows:
    """The pairs of rows that are not plain.

    Attributes:
        keys: Types of the two columns of a pair.
        where: SQL for a row's pair.
    """

    keys: tuple[str, str]
    where: str
    number: int = field(default=0, init=False)
    _pairs: list[Pair] = field(default_factory=list, init=False)

    def add(self, keys: pa.Array, ids: pa.Array) -> None:
        """Take notice of rows, by the two columns of their pairs."""
        self.number += len(keys)
        if self.number > MAX_OTHERS:
            return
        try:
            pairs = list(zip(keys.to_pylist(), ids.to_pylist(), strict=True))
        except (ValueError, OverflowError):  # Python has no such time: all rows are read as lines
            self.number = MAX_OTHERS + 1
            return
        of_key, of_id = self.keys
        self._pairs += [
            Pair(key=Key(type=of_key, text=text_of(key)), id=Key(type=of_id, text=text_of(id_)))
            for key, id_ in pairs
        ]

    def condition(self) -> str:
        """Return SQL that these rows meet."""
        rows = ", ".join(map(row_of, self._pairs))
        return f"{self.where} IN (SELECT * FROM (VALUES {rows}) AS others)"


def write_columns_to(
    path: Path, batches: Iterable[pa.RecordBatch], rows: TypedRows, others: OtherRows
) -> None:
    """Write batches of typed rows, and take notice of those that are not plain."""
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema()) as writer:
        for batch in batches:
            if not batch.num_rows:
                continue
            *columns, key, id_ = batch.columns
            texts = [each for each in (key, id_) if pa.types.is_string(each.type)]
            typed = rows.typed(columns, texts)
            writer.write_batch(typed)
            is_plain = typed.column(IS_PLAIN)
            if is_plain.false_count:
                is_other = call("invert", is_plain)
                others.add(key.filter(is_other), id_.filter(is_other))
