"""Records to typed columns: each column is taken from a field of a JSON record and converted strictly.

Every record becomes one row. A record with a missing or wrong value gets the reason instead of failing the
query; the first problem in the order of the columns counts.

| column | takes |
| --- | --- |
| STRING | a text as it is; of any other value its JSON text |
| INT, BIGINT, DECIMAL | a JSON number, or a text that is one, blanks around it included; no digit is lost |
| DOUBLE | the same, also with an exponent; the nearest double |
| BOOLEAN | true or false, also as text in any case |
| DATE | `YYYY-MM-DD` |
| TIMESTAMP | a text as in RFC 3339, UTC without a zone; a JSON number of whole milliseconds since 1970 |
| ARRAY, MAP, STRUCT | JSON of that shape, also as a text; Spark reads the parts, by its own rules |

Belongs here: finding the values and judging them. Does not belong here: the conversions themselves
(`conversions.py`) and what is done with the columns afterwards (`declared_transforms.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.contracts.column_types import DecimalType, ScalarType
from etl_assets.contracts.columns import Column
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.contracts.rules import NotNull
from etl_assets.contracts.sql_text import identifier, string_literal
from etl_assets.transforms.analysis import is_condition
from etl_assets.transforms.conversions import TypeConversion, conversion, described

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OFFSET, REASON, ERROR = "_offset", "_reason", "_error"
"""Columns beside those that the user declares: the record's offset, and why the row is rejected, else
null.
"""
_QUOTE = string_literal('"')
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CORRUPT = "_corrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumn:
    """A column and the field of the records that it is taken from. A dot in a field's name has no meaning."""

    column: Column
    field: str

    @property
    def label(self) -> str:
        """The column's name for errors, with the field's if that is another one."""
        name = self.column.name
        return name if self.field == name else f"{name} (the field {self.field!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """Records that need few values, such as deletes.

    Attributes:
        condition: Spark SQL over the columns. Where they have not all its columns, no record is meant.
        needs: The columns whose values count.
    """

    condition: str
    needs: frozenset[str]


def typed_records(
    records: DataFrame, columns: Sequence[RecordColumn], *, partial: Sequence[Partial] = ()
) -> DataFrame:
    """Take columns from records.

    Args:
        records: `offset` and `record`, a JSON object in its canonical form.
        columns: The columns to take.
        partial: Records of which few columns count.

    Returns:
        The columns, `_offset`, and `_reason` and `_error`, which are null for a record that has what the
        columns require. A rejected record may lack any value.
    """
    from pyspark.sql import functions as F

    fields = list(dict.fromkeys(each.field for each in columns))
    places = _places(fields)
    # 1. All fields as texts, from one pass over the record. Names that differ only in case need another one.
    parsed = records.select(
        F.col("offset").alias(OFFSET),
        F.col("record").alias("_record"),
        *(
            F.expr(_parse_sql(names)).alias(f"_fields_{number}")
            for number, names in enumerate(_passes(fields))
        ),
        *(F.expr(_parse_nested_sql(each)).alias(f"_nested_{number}") for number, each in _nested(columns)),
    )
    # 2. The exact text of each field.
    exact = {each.field for each in columns if _needs_digits(each)}
    texts = parsed.select(
        "*",
        *(
            F.expr(_exact_text(name, value) if name in exact else value).alias(f"_text_{number}")
            for number, name in enumerate(fields)
            for value in [places[name]]
        ),
    )
    # 3. The values.
    text_of = {name: f"_text_{number}" for number, name in enumerate(fields)}
    typed = texts.select(
        OFFSET,
        *(f"_text_{number}" for number in range(len(fields))),
        *(
            F.expr(_value_sql(number, each, text_of[each.field])).alias(each.column.name)
            for number, each in enumerate(columns)
        ),
    )
    # 4. The first problem.
    partial = [each for each in partial if is_condition(typed, each.condition)]
    kinds = [
        F.coalesce(F.expr(each.condition), F.lit(False)).alias(f"_partial_{number}")
        for number, each in enumerate(partial)
    ]
    typed = typed.select("*", *kinds) if kinds else typed
    judged = typed.select("*", F.expr(_judgement_sql(columns, text_of, partial)).alias("_judgement"))
    return judged.select(
        *(each.column.name for each in columns),
        OFFSET,
        F.col("_judgement.reason").alias(REASON),
        F.col("_judgement.error").alias(ERROR),
    )


def judgement(reason: DeadLetterReason, error: str) -> str:
    """Return SQL for `STRUCT<reason, error>` with an error in words."""
    return f"named_struct('reason', {string_literal(reason.value)}, 'error', {string_literal(error)})"


def broken_rules(columns: Sequence[Column]) -> list[str]:
    """Return branches of a CASE for each rule of some columns, in the order of the columns."""
    return [
        f"WHEN NOT {rule.sql(column.name)}"
        f" THEN {judgement(DeadLetterReason.CONTRACT_VIOLATION, rule.explain(column.name))}"
        for column in columns
        for rule in column.all_rules
    ]


def _passes(fields: Sequence[str]) -> list[list[str]]:
    """Return the fields so that no two of one pass differ in case only, which Spark could not tell apart."""
    passes: list[dict[str, str]] = []
    for name in fields:
        found = next((each for each in passes if name.casefold() not in each), None)
        if found is None:
            passes.append(found := {})
        found[name.casefold()] = name
    return [list(each.values()) for each in passes]


def _places(fields: Sequence[str]) -> Mapping[str, str]:
    """Return SQL for each field as `from_json` returns it."""
    return {
        name: f"_fields_{number}.{identifier(name)}"
        for number, names in enumerate(_passes(fields))
        for name in names
    }


def _parse_sql(names: Sequence[str]) -> str:
    schema = ", ".join(f"{identifier(name)} STRING" for name in names)
    return f"from_json(record, {string_literal(schema)})"


def _nested(columns: Sequence[RecordColumn]) -> list[tuple[int, RecordColumn]]:
    return [(number, each) for number, each in enumerate(columns) if _is_nested(each.column)]


def _is_nested(column: Column) -> bool:
    return not isinstance(column.parsed_type, ScalarType | DecimalType)


def _parse_nested_sql(each: RecordColumn) -> str:
    """Return SQL for a nested value of the record. `_corrupt` is not null if it has another shape."""
    return _from_json("record", each.field, each.column.type)


def _from_json(text: str, name: str, ddl: str) -> str:
    # A field of that name would be taken for the mark.
    corrupt = _CORRUPT if name.casefold() != _CORRUPT else f"{_CORRUPT}_value"
    schema = f"{identifier(name)} {ddl}, {corrupt} STRING"
    parsed = (
        f"from_json({text}, {string_literal(schema)},"
        f" map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', {string_literal(corrupt)}))"
    )
    return parsed


def _conversion(each: RecordColumn, text: str) -> TypeConversion | None:
    """Return the conversion of a simple column; None for a nested one."""
    type_ = each.column.parsed_type
    if not isinstance(type_, ScalarType | DecimalType):
        return None
    return conversion(type_, text, is_number=_is_number(each.field))


def _needs_digits(each: RecordColumn) -> bool:
    found = _conversion(each, "x")
    return found is not None and found.needs_digits


def _key(name: str) -> str:
    """Return SQL for the text before a field's value in canonical JSON."""
    return string_literal(json.dumps(name, ensure_ascii=False) + ":")


def _once(name: str) -> str:
    """Return SQL for whether the text before a field's value occurs once.

    It may also belong to a nested field, or be part of a text. If it occurs once, it is this field's.
    """
    return f"substring_index(_record, {_key(name)}, 2) = _record"


def _exact_text(name: str, value: str) -> str:
    """Return SQL for a field's value as text, with every digit.

    `from_json` returns a text as it is, but reads a number with a fraction through a double, also within an
    array or object. A text that begins otherwise is no such value, and neither is a whole number. Of the
    others, a value that follows its key in the record exactly as `from_json` returns it was not changed. The
    rest is read again, exactly.
    """
    key = _key(name)
    quoted = f"contains(_record, concat({key}, {_QUOTE}, {value}, {_QUOTE}))"
    verbatim = " OR ".join(
        f"contains(_record, concat({key}, {value}, {string_literal(after)}))" for after in (",", "}")
    )
    # Compared as bytes, which costs far less than a pattern: from the minus to the nine, and the brackets.
    may_be = f"({value} >= '-' AND {value} < ':') OR startswith({value}, '[') OR startswith({value}, '{{')"
    return (
        f"CASE WHEN {value} IS NULL OR NOT ({may_be}) OR {value} RLIKE '^-?[0-9]+$'"
        f" OR (({quoted} OR ({value} RLIKE '^-?[0-9]' AND ({verbatim}))) AND {_once(name)})"
        f" THEN {value} ELSE coalesce(try_cast({_variant(name)} AS STRING), {value}) END"
    )


def _is_number(name: str) -> str:
    """Return SQL for whether a field whose text has digits only is a JSON number."""
    is_text = f"contains(_record, concat({_key(name)}, {_QUOTE}))"
    return (
        f"CASE WHEN {_once(name)} THEN NOT {is_text} ELSE schema_of_variant({_variant(name)}) <> 'STRING' END"
    )


def _variant(name: str) -> str:
    """Return SQL for a field's value, exact in any case, which takes longer."""
    whole = "try_parse_json(_record)"
    if _PLAIN_NAME.fullmatch(name):
        return f"try_variant_get({whole}, {string_literal('$.' + name)}, 'variant')"
    return f"try_element_at(try_cast({whole} AS MAP<STRING, VARIANT>), {string_literal(name)})"


def _value_sql(number: int, each: RecordColumn, text: str) -> str:
    found = _conversion(each, text)
    if found is not None:
        return found.sql
    ddl, nested = each.column.type, f"_nested_{number}"
    corrupt = _CORRUPT if each.field.casefold() != _CORRUPT else f"{_CORRUPT}_value"
    in_text = _from_json(f"concat('{{\"v\":', {text}, '}}')", "v", ddl)
    return (
        f"CASE WHEN {text} IS NULL THEN NULL WHEN {nested}.{corrupt} IS NULL THEN"
        f" {nested}.{identifier(each.field)} WHEN {in_text}.{_CORRUPT} IS NULL THEN {in_text}.v END"
    )


def _judgement_sql(
    columns: Sequence[RecordColumn], text_of: Mapping[str, str], partial: Sequence[Partial]
) -> str:
    """Return SQL for `STRUCT<reason, error>` of the first problem of a row, null for a good row."""
    branches = []
    for each in columns:
        column, text = each.column, text_of[each.field]
        first = len(branches)
        if not column.nullable:
            missing = judgement(DeadLetterReason.MISSING_FIELD, f"{each.label} is missing or null")
            branches.append(f"WHEN {text} IS NULL THEN {missing}")
        if column.type != "STRING":
            found = _conversion(each, text)
            expected = described(column.parsed_type) if found is None else found.expected
            wrong = judgement(
                DeadLetterReason.WRONG_TYPE,
                f"{each.label} is not of the type {column.type}: it must be {expected}",
            )
            branches.append(f"WHEN {text} IS NOT NULL AND {identifier(column.name)} IS NULL THEN {wrong}")
        branches += [
            f"WHEN NOT {rule.sql(column.name)}"
            f" THEN {judgement(DeadLetterReason.CONTRACT_VIOLATION, rule.explain(column.name))}"
            for rule in column.rules
            if not isinstance(rule, NotNull)
        ]
        for number in (n for n, kind in enumerate(partial) if column.name not in kind.needs):
            branches[first:] = [
                branch.replace("WHEN ", f"WHEN NOT _partial_{number} AND ", 1) for branch in branches[first:]
            ]
    return f"CASE {' '.join(branches)} END" if branches else _NO_JUDGEMENT


_NO_JUDGEMENT = "CAST(NULL AS STRUCT<reason: STRING, error: STRING>)"
