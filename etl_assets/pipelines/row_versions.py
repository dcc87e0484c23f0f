"""The versions of a table's rows, each with the time from which and until which it was there (SCD type 2).

They are a query over the history of the table, so that late and replayed changes are where they belong. It is
SQL that DataFusion and Spark both understand.

The order of changes is that of the log. A version ends where a value of the row changes, or where the row is
gone. What changes nothing makes no version: an update with the same values, a row that is copied again.
Versions that one transaction makes and ends were never seen, and are left out.

A copy of the table, after the first one, begins at a place of the log, and reads rows later. At this place
ends what the table had before, unless the copy or the log has the row after it: then it was there meanwhile.

Belongs here: the query. Does not belong here: the history (`change_history.py`), and running queries
(`query/sql.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from etl_assets.pipelines.change_history import OPERATION_COLUMN, SEQUENCE_COLUMN, TIME_COLUMN

_OFFSET = "_offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowVersions:
    """The versions of one table's rows.

    Attributes:
        name: The name to query them by.
        history: Name of the table's history.
        keys: Columns that identify a row.
        columns: The columns of rows, keys included.
        sequence: Column with the place of a change's commit in the log.
        sequence_type: Its type.
        place: What the places of the log are called at the ends of the names of two columns.
        numbered: Whether changes of one commit are numbered; otherwise they are in the order of arrival.
        change: Column with what a change does: `upsert`, `delete` or `truncate`.
        lacks: Column that says which fields a change lacks; None if changes are whole.
        fields: For each column that may be lacked, a text that is in that column if it is.
    """

    name: str
    history: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    sequence: str
    sequence_type: str
    place: str
    numbered: bool
    change: str
    lacks: str | None
    fields: Mapping[str, str]

    def sql(self, *, quote: str = '"') -> str:
        """Return the query.

        Args:
            quote: What names stand in: `"`, or a backtick for Spark.
        """
        return _Query(versions=self, quote=quote).text()

    @property
    def added(self) -> tuple[str, str, str, str, str]:
        """Names of the columns after those of the row: from when, until when, is it current, and places.

        A column of the table keeps its name: the other one gets an underscore.
        """
        valid_from, valid_to, is_current, first, last = (
            self._free(each)
            for each in (
                "valid_from",
                "valid_to",
                "is_current",
                f"valid_from_{self.place}",
                f"valid_to_{self.place}",
            )
        )
        return valid_from, valid_to, is_current, first, last

    def _free(self, name: str) -> str:
        while name in self.columns:
            name += "_"
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    versions: RowVersions
    quote: str

    def text(self) -> str:
        named = self.versions
        rows = ", ".join(map(self._name, named.columns))
        keys = ", ".join(map(self._name, named.keys))
        by_key = f"PARTITION BY {keys} ORDER BY _at, _n, _arrival"
        so_far = f"({by_key} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        whole_run = (
            f"(PARTITION BY {keys}, _run ORDER BY _at, _n, _arrival"
            " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
        )
        added = dict(
            zip(("from", "to", "current", "from_at", "to_at"), map(self._name, named.added), strict=True)
        )
        others = [self._name(each) for each in named.columns if each not in named.keys]
        same = " AND ".join(f"({each} IS NOT DISTINCT FROM lag({each}) OVER ({by_key}))" for each in others)
        return f"""
WITH _changes AS (
    SELECT {rows}, {self._places()},
        {self._name(named.change)} AS _change, {self._lacks} AS _lacks
    FROM {self._name(named.history)}
    WHERE {self._name(named.change)} <> 'truncate'
),
_filled AS (
    SELECT {", ".join(self._filled(each, so_far) for each in named.columns)},
        _at, _n, _arrival, _time, _change, _operation
    FROM _changes
),
_numbered AS (
    SELECT *,
        row_number() OVER (PARTITION BY {keys}, _at ORDER BY _n DESC, _arrival DESC) AS _from_last,
        first_value(_operation) OVER (PARTITION BY {keys}, _at ORDER BY _n, _arrival) AS _first_operation
    FROM _filled
),
{self._emptied()},
_placed AS (
    SELECT {", ".join(f"c.{self._name(each)}" for each in named.columns)},
        c._at, c._n, c._arrival, c._time, c._change, c._operation, c._first_operation,
        e._truncate_at, e._truncate_n, e._truncate_time, e._copy_at, e._copy_n, e._copy_time,
        e._since_at, e._since_n, e._since_time
    FROM _numbered c JOIN _emptied e
        ON (e._at IS NULL OR {_before("e._at", "e._n", "c._at", "c._n")})
        AND (e._next_at IS NULL OR {_before("c._at", "c._n", "e._next_at", "e._next_n")})
    WHERE c._from_last = 1
),
_followed AS (
    SELECT *,
        lead(_at) OVER ({by_key}) AS _next_at,
        lead(_n) OVER ({by_key}) AS _next_n,
        lead(_time) OVER ({by_key}) AS _next_time,
        lead(_first_operation) OVER ({by_key}) AS _next_operation,
        lag(_at) OVER ({by_key}) AS _last_at,
        lag(_n) OVER ({by_key}) AS _last_n
    FROM _placed
),
_met AS (
    SELECT *,
        _truncate_at IS NOT NULL AND (_next_at IS NULL
            OR {_before("_truncate_at", "_truncate_n", "_next_at", "_next_n")}) AS _meets_truncate,
        _copy_at IS NOT NULL AND (_next_at IS NULL
            OR {_before("_copy_at", "_copy_n", "_next_at", "_next_n")}) AS _meets_copy,
        _truncate_at IS NOT NULL AND (_copy_at IS NULL
            OR {_before("_truncate_at", "_truncate_n", "_copy_at", "_copy_n")}) AS _truncate_first,
        _operation = 'copy' AND _since_at IS NOT NULL AND (_last_at IS NULL
            OR {_before("_last_at", "_last_n", "_since_at", "_since_n")}) AS _was_before
    FROM _followed
),
_ended AS (
    SELECT *,
        CASE WHEN _was_before THEN _since_at ELSE _at END AS _from_at,
        CASE WHEN _was_before THEN _since_time ELSE _time END AS _from_time,
        {self._ends("at")},
        {self._ends("time")},
        _change = 'upsert' AND _next_at IS NOT NULL AND NOT _meets_truncate
            AND NOT (_meets_copy AND _next_operation = 'insert') AS _goes_on
    FROM _met
),
_compared AS (
    SELECT *,
        _change = 'upsert' AND coalesce(lag(_goes_on) OVER ({by_key}), false)
            AND {same or "true"} AS _is_same
    FROM _ended
),
_runs AS (
    SELECT *, sum(CASE WHEN _is_same THEN 0 ELSE 1 END) OVER {so_far} AS _run,
        max(_from_time) OVER {so_far} AS _valid_from
    FROM _compared
),
_versions AS (
    SELECT *,
        last_value(_to_at) OVER {whole_run} AS _last_to_at,
        last_value(_to_time) OVER {whole_run} AS _last_to_time
    FROM _runs
    WHERE _change = 'upsert'
),
_bounded AS (
    SELECT *, lead(_valid_from) OVER ({by_key}) AS _next_valid_from
    FROM _versions
    WHERE NOT _is_same
)
SELECT {rows},
    _valid_from AS {added["from"]},
    CASE WHEN _last_to_at IS NOT NULL
        THEN least(greatest(_last_to_time, _valid_from), _next_valid_from) END AS {added["to"]},
    _last_to_at IS NULL AS {added["current"]},
    _from_at AS {added["from_at"]},
    _last_to_at AS {added["to_at"]}
FROM _bounded
WHERE _last_to_at IS NULL OR _from_at < _last_to_at
""".strip()

    def _name(self, name: str) -> str:
        return f"{self.quote}{name}{self.quote}"

    @property
    def _lacks(self) -> str:
        return "CAST(NULL AS STRING)" if self.versions.lacks is None else self._name(self.versions.lacks)

    def _places(self) -> str:
        """Return the columns of a change's place, time and operation."""
        change = self._name(self.versions.change)
        number = self._name(SEQUENCE_COLUMN if self.versions.numbered else _OFFSET)
        operation = (
            f"coalesce({self._name(OPERATION_COLUMN)}, {change})" if self.versions.numbered else change
        )
        return (
            f"{self._name(self.versions.sequence)} AS _at, {number} AS _n, {self._name(_OFFSET)} AS _arrival,"
            f" {self._name(TIME_COLUMN)} AS _time, {operation} AS _operation"
        )

    def _filled(self, column: str, so_far: str) -> str:
        """Return a value that a change lacks: that of the last change of its key that has one."""
        name = self._name(column)
        if (mark := self.versions.fields.get(column)) is None:
            return name
        text = "'{}'".format(mark.replace("'", "''"))
        lacks = f"coalesce(contains(_lacks, {text}), false)"
        had = f"last_value(CASE WHEN {lacks} THEN NULL ELSE named_struct('v', {name}) END) IGNORE NULLS"
        return f"CASE WHEN {lacks} THEN ({had} OVER {so_far})['v'] ELSE {name} END AS {name}"

    def _emptied(self) -> str:
        """Return the places that empty the table: each with the next ones, and a first one before all."""
        later = "OVER (ORDER BY _at NULLS FIRST, _n ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)"
        order = "OVER (ORDER BY _at NULLS FIRST, _n)"
        nothing = f"CAST(NULL AS {self.versions.sequence_type}) AS _at, CAST(NULL AS BIGINT) AS _n"

        def first(kind: str, part: str) -> str:
            is_copy = "_is_copy" if kind == "copy" else "NOT _is_copy"
            return f"first_value(CASE WHEN {is_copy} THEN _{part} END) IGNORE NULLS {later} AS _{kind}_{part}"

        firsts = ",\n        ".join(
            first(kind, part) for kind in ("truncate", "copy") for part in ("at", "n", "time")
        )
        return f"""_emptying AS (
    SELECT {self._places()}
    FROM {self._name(self.versions.history)}
    WHERE {self._name(self.versions.change)} = 'truncate'
),
_all_emptying AS (
    SELECT _at, _n, _time, _operation = 'copy' AS _is_copy FROM _emptying
    UNION ALL
    SELECT {nothing}, CAST(NULL AS TIMESTAMP) AS _time, false AS _is_copy
),
_emptied AS (
    SELECT _at, _n, lead(_at) {order} AS _next_at, lead(_n) {order} AS _next_n,
        {firsts},
        CASE WHEN _is_copy THEN _at END AS _since_at,
        CASE WHEN _is_copy THEN _n END AS _since_n,
        CASE WHEN _is_copy THEN _time END AS _since_time
    FROM _all_emptying
)"""

    @staticmethod
    def _ends(part: str) -> str:
        """Return where, or when, a row is another one or gone; null if it is current."""
        return f"""CASE
            WHEN _meets_truncate AND (_truncate_first OR NOT _meets_copy) THEN _truncate_{part}
            WHEN _meets_copy AND (_meets_truncate OR _next_at IS NULL
                OR _next_operation IN ('insert', 'copy')) THEN _copy_{part}
            ELSE _next_{part}
        END AS _to_{part}"""


def _before(at: str, n: str, other_at: str, other_n: str) -> str:
    """Return whether a place in the log is before another one."""
    return f"({at} < {other_at} OR ({at} = {other_at} AND {n} < {other_n}))"
