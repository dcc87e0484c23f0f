"""The newest change of each key among staged upserts, deletes and truncates, in Arrow.

Belongs here: which changes stand. Does not belong here: the tombstones of the table (`known_tombstones.py`),
and the same in Spark (`delta/write/changes.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.write.changes import IS_DELETED, ChangeColumns
from etl_assets.steps.new_keys import one_of_each_key, read_columns
from etl_assets.steps.row_order import Place, is_newer, is_older_than, newest_place

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from etl_assets.contracts.columns import TableContract
    from etl_assets.steps.plain_stage import PlainRows

_PLACE, _TOMBSTONE = "_place", "_tombstone"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestChanges:
    """The newest change of each key that no tombstone makes late.

    Attributes:
        upserts: Positions of the upserts among the rows of their files, ascending; None: all of them.
        deletes: Keys and order of the deletes.
        keys: The keys of both.
        truncate: Stored rows before this place are removed; None if no truncate has come.
    """

    upserts: np.ndarray | None
    deletes: pa.Table
    keys: pa.Table
    truncate: Place | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesOfLoad:
    """Keys and order of staged changes.

    Attributes:
        columns: What the columns mean.
        upserts: Those of the upserts, in the order of their files.
        deletes: Those of the deletes.
        truncate: The place of the newest truncate; None if there is none.
    """

    columns: ChangeColumns
    upserts: pa.Table
    deletes: pa.Table
    truncate: Place | None

    @classmethod
    def read(cls, contract: TableContract, columns: ChangeColumns, plain: PlainRows) -> ChangesOfLoad:
        """Return the changes of staged files."""
        import pyarrow.compute as pc

        names = [*dict.fromkeys((*columns.keys, *columns.order))]
        upserts, gone = (read_columns(contract, files, names) for files in (plain.files, plain.deleted))
        truncate = None
        if plain.truncates:
            kind = read_columns(contract, plain.deleted, [IS_TRUNCATE]).column(IS_TRUNCATE)
            truncate = newest_place(gone.filter(kind), columns.order)
            gone = gone.filter(pc.call_function("invert", [kind]))
        return cls(columns=columns, upserts=upserts, deletes=gone, truncate=truncate)

    def newest_deletes(self) -> pa.Table:
        """Return the newest delete of each key."""
        places = one_of_each_key(self.deletes, self.columns.keys, self.columns.order, newest=True)
        return self.deletes if places is None else self.deletes.take(places)

    def keys(self) -> pa.Table:
        """Return the keys of all changes but truncates, maybe several times."""
        import pyarrow as pa

        names = list(self.columns.keys)
        return pa.concat_tables([self.upserts.select(names), self.deletes.select(names)])

    def newest(self, tombstones: pa.Table, truncated: Place | None) -> NewestChanges:
        """Return the newest change of each key, without those that are late.

        If the newest one is late, so are all others of its key.

        Args:
            tombstones: Keys and order of the stored tombstones of these keys.
            truncated: The place of the stored truncate; None if there is none.
        """
        import numpy as np
        import pyarrow as pa

        columns, first_delete = self.columns, self.upserts.num_rows
        rows = pa.concat_tables([self.upserts, self.deletes])
        places = one_of_each_key(rows, columns.keys, columns.order, newest=True)
        places = np.arange(rows.num_rows) if places is None else places
        truncate = _last(truncated, self.truncate)
        if tombstones.num_rows or truncate is not None:
            chosen = rows.take(places).append_column(_PLACE, pa.array(places))
            chosen = chosen.append_column(IS_DELETED, pa.array(places >= first_delete))
            places = places[~np.isin(places, self._late(chosen, tombstones, truncate))]
        upserts, deletes = places[places < first_delete], places[places >= first_delete]
        return NewestChanges(
            upserts=None if len(upserts) == first_delete else upserts,
            deletes=self.deletes.take(deletes - first_delete),
            keys=rows.select(list(columns.keys)).take(places),
            truncate=None if self.truncate is None else truncate,
        )

    def _late(self, chosen: pa.Table, tombstones: pa.Table, truncate: Place | None) -> np.ndarray:
        """Return the places of changes that are older than a tombstone, or as old and no delete."""
        import numpy as np
        import pyarrow.compute as pc

        keys, order = list(self.columns.keys), self.columns.order
        beside = [name for name in order if name not in keys]
        renamed = [name + _TOMBSTONE if name in beside else name for name in tombstones.column_names]
        both = chosen.join(tombstones.rename_columns(renamed), keys, join_type="inner")
        mine = [both.column(name) for name in order]
        theirs = [both.column(name + _TOMBSTONE if name in beside else name) for name in order]
        is_newer_or_same = is_newer(mine, theirs, or_same=True)
        is_later = is_newer(mine, theirs)
        stands = pc.call_function("if_else", [both.column(IS_DELETED), is_newer_or_same, is_later])
        late = [both.column(_PLACE).filter(pc.call_function("invert", [stands])).to_numpy()]
        if truncate is not None:
            late.append(chosen.column(_PLACE).filter(is_older_than(chosen, truncate)).to_numpy())
        return np.concatenate(late)


def _last(one: Place | None, other: Place | None) -> Place | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other, key=lambda place: tuple(place.values()))
