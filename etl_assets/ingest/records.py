"""Records: what the records of a source must be, and the columns that they become in the source's table.

Belongs here: the interface. Does not belong here: its implementations (`envelope_records.py`,
`json_records.py`), and what happens to validated records (`ingest_batch.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.contracts.envelope import Record
    from etl_assets.sources.source_files import InputFile


class Records(Protocol):
    """The validation of a source's records. A value that workers of Spark get a copy of.

    A validated record is a named tuple (`row_type`) with the fields that `staged` names, `fingerprint`, the
    id, and `reason`, `error`, `record` and `record_encoding`, which only a rejected record has.
    """

    @property
    def id_column(self) -> str:
        """The column, and the field, of a record's id: two accepted records never have the same."""
        ...

    @property
    def row_type(self) -> Any:
        """The named tuple."""
        ...

    @property
    def staged(self) -> Mapping[str, tuple[str, pa.DataType]]:
        """Columns that an accepted record becomes: for each the field and the type."""
        ...

    @property
    def repeating(self) -> tuple[str, ...]:
        """Those of the columns that have few values, for which a dictionary pays."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of a record to hold; a longer one is rejected."""
        ...

    @property
    def uses_positions(self) -> bool:
        """Whether a record's position in its file is part of what it becomes."""
        ...

    def columns_of(self, lines: Sequence[Record], input_file: InputFile) -> Mapping[str, pa.Array] | None:
        """Return the columns of `staged` of some records of a file that are all accepted, and are found to be
        so by columns. None if they are to be validated one by one.

        They are what `validator` makes of the records.
        """
        ...

    def validator(self, input_file: InputFile) -> Callable[[Record, int], Any]:
        """Return the validation of one record of a file, from its text or values and its position.

        The same record at the same position always has the same result.
        """
        ...
