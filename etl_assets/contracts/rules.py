"""Row rules: constraints on the values of one column, as data that becomes SQL, words and a pandera check.

Belongs here: the closed set of rules, and the expression that finds the first broken rule of a row. Does not
belong here: which column has which rule (`tables/`), pandera (`pandera_models.py`), and the handling of a bad
row.

Every rule except `NotNull` accepts NULL: whether a value may be missing is a separate question.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from etl_assets.contracts.column_types import ColumnType, DecimalType, ScalarType
from etl_assets.contracts.sql_text import identifier, number_literal, string_literal
from etl_assets.errors import ContractError

if TYPE_CHECKING:
    from etl_assets.contracts.columns import Column


class Rule(ABC):
    """Interface of a rule. All rules are subclasses in this module."""

    __slots__ = ()

    @property
    @abstractmethod
    def reason(self) -> str:
        """Requirement of the rule, to follow a column's name: `must be at least 0`."""

    @property
    def brief(self) -> str:
        """Requirement in a few words, for places where the column is known: `at least 0`."""
        return self.reason.removeprefix("must be ")

    @abstractmethod
    def _holds(self, quoted: str) -> str:
        """Return SQL that is TRUE or FALSE for a value that is not NULL."""

    @abstractmethod
    def fits(self, type_: ColumnType) -> bool:
        """Return whether a column of this type can have the rule."""

    def sql(self, column: str) -> str:
        """Return boolean SQL over one row: TRUE if the column's value is good, else FALSE, never NULL."""
        quoted = identifier(column)
        return f"({quoted} IS NULL OR {self._holds(quoted)})"

    def explain(self, column: str) -> str:
        """Return the rule as a sentence about one column: `amount must be at least 0`."""
        return f"{column} {self.reason}"


@dataclass(frozen=True, slots=True)
class NotNull(Rule):
    """The value is not null. Follows from `nullable=False`, so contracts do not declare it."""

    @property
    def reason(self) -> str:
        return "must not be null"

    @property
    def brief(self) -> str:
        return "not null"

    def _holds(self, quoted: str) -> str:
        return "TRUE"

    def sql(self, column: str) -> str:
        return f"({identifier(column)} IS NOT NULL)"

    def fits(self, type_: ColumnType) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class AtLeast(Rule):
    """A number not below `bound`."""

    bound: int | Decimal

    @property
    def reason(self) -> str:
        return f"must be at least {number_literal(self.bound)}"

    def _holds(self, quoted: str) -> str:
        return f"{quoted} >= {number_literal(self.bound)}"

    def fits(self, type_: ColumnType) -> bool:
        return _is_number(type_)


@dataclass(frozen=True, slots=True)
class AtMost(Rule):
    """A number not above `bound`."""

    bound: int | Decimal

    @property
    def reason(self) -> str:
        return f"must be at most {number_literal(self.bound)}"

    def _holds(self, quoted: str) -> str:
        return f"{quoted} <= {number_literal(self.bound)}"

    def fits(self, type_: ColumnType) -> bool:
        return _is_number(type_)


@dataclass(frozen=True, slots=True)
class OneOf(Rule):
    """One of a closed set of strings; usually `OneOf(tuple(SomeStrEnum))`."""

    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) < len(self.values):
            raise ContractError("OneOf needs values, each of them once", fix="list every allowed value once")
        object.__setattr__(self, "values", tuple(str(value) for value in self.values))

    @property
    def reason(self) -> str:
        return f"must be one of {', '.join(self.values)}"

    def _holds(self, quoted: str) -> str:
        return f"{quoted} IN ({', '.join(map(string_literal, self.values))})"

    def fits(self, type_: ColumnType) -> bool:
        return _is_text(type_)


@dataclass(frozen=True, slots=True)
class NotEmpty(Rule):
    """A string of at least one character."""

    @property
    def reason(self) -> str:
        return "must not be empty"

    @property
    def brief(self) -> str:
        return "not empty"

    def _holds(self, quoted: str) -> str:
        return f"{quoted} <> ''"

    def fits(self, type_: ColumnType) -> bool:
        return _is_text(type_)


@dataclass(frozen=True, slots=True)
class MaxCharacters(Rule):
    """A string of at most `limit` characters (Unicode code points, not bytes)."""

    limit: int

    @property
    def reason(self) -> str:
        return f"must be at most {self.limit} characters long"

    @property
    def brief(self) -> str:
        return f"at most {self.limit} chars"

    def _holds(self, quoted: str) -> str:
        # The byte length is stored, characters must be counted. Most texts pass the first test.
        return f"(octet_length({quoted}) <= {self.limit} OR char_length({quoted}) <= {self.limit})"

    def fits(self, type_: ColumnType) -> bool:
        return _is_text(type_)


@dataclass(frozen=True, slots=True)
class DoesNotContain(Rule):
    """A string that does not contain a given text. Costs a tenth of an equivalent pattern."""

    text: str

    def __post_init__(self) -> None:
        if not self.text:
            raise ContractError("every string contains the empty text", fix="name what must not be there")

    @property
    def reason(self) -> str:
        return f"must not contain {self.text!r}"

    @property
    def brief(self) -> str:
        return f"no {self.text!r}"

    def _holds(self, quoted: str) -> str:
        return f"NOT contains({quoted}, {string_literal(self.text)})"

    def fits(self, type_: ColumnType) -> bool:
        return _is_text(type_)


@dataclass(frozen=True, slots=True)
class HexDigits(Rule):
    """A string of exactly `length` lower-case hexadecimal digits. Costs a third of an equivalent pattern."""

    length: int

    @property
    def reason(self) -> str:
        return f"must be {self.length} lower-case hexadecimal digits"

    @property
    def brief(self) -> str:
        return f"{self.length} hex digits"

    def _holds(self, quoted: str) -> str:
        only_digits = f"unhex({quoted}) IS NOT NULL AND lower({quoted}) = {quoted}"
        return f"(octet_length({quoted}) = {self.length} AND {only_digits})"

    def fits(self, type_: ColumnType) -> bool:
        return _is_text(type_)


@dataclass(frozen=True, slots=True)
class Matches(Rule):
    """A string that a pattern matches from its first to its last character.

    A pattern costs about one CPU second per million values; prefer an equivalent plainer rule.

    Attributes:
        pattern: A regular expression with the same meaning in Java and in Python: ASCII literals, `[...]`
            classes, groups, `|` and counts. No backslash, dot, anchor, look-around, flag or possessive count:
            the two languages differ in each of those, or would under some setting.
        meaning: The pattern in words, to follow "must be": `three capital letters`.
    """

    pattern: str
    meaning: str

    def __post_init__(self) -> None:
        if not _PORTABLE_PATTERN.fullmatch(self.pattern) or not _compiles(self.pattern):
            raise ContractError(
                f"the pattern {self.pattern!r} does not surely mean the same in Java and in Python",
                fix="use ASCII literals, [...] classes, groups, | and counts only",
                pattern=self.pattern,
            )

    @property
    def whole_value_pattern(self) -> str:
        """The pattern for a search, anchored at both ends.

        `$` would also match before a final line feed; "no character follows" means the end in both languages.
        """
        return f"^(?:{self.pattern})(?!(?s:.))"

    @property
    def reason(self) -> str:
        return f"must be {self.meaning}"

    def _holds(self, quoted: str) -> str:
        return f"{quoted} RLIKE {string_literal(self.whole_value_pattern)}"

    def fits(self, type_: ColumnType) -> bool:
        return _is_text(type_)


def first_violation(columns: Iterable[Column]) -> str:
    """Return SQL that is NULL for a good row, else the sentence about the first broken rule.

    It is one CASE expression, evaluated in the pass that splits good rows from rejected ones. Columns are
    validated in their order, a missing value before any other rule.

    Args:
        columns: The columns to validate; the frame must have all of them.
    """
    branches = [
        f"WHEN NOT {rule.sql(column.name)} THEN {string_literal(rule.explain(column.name))}"
        for column in columns
        for rule in column.all_rules
    ]
    if not branches:
        return "CAST(NULL AS STRING)"
    return f"CASE {' '.join(branches)} END"


_PORTABLE_PATTERN = re.compile(
    r"""(?:
      \[\^?(?:(?!&&|--|\|\||~~)[\x20-\x5a\x5e-\x7e])+\]   # a class: no backslash, brackets or set operations
    | \((?:\?:|(?!\?)) | \) | \|                          # groups without a name, flag or look-around
    | (?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??(?!\+)           # counts; possessive ones are left out
    | [A-Za-z0-9\ _/:;,<>=!@%&'"`~\#-]                    # characters without a meaning
    )+""",
    re.VERBOSE,
)


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _is_number(type_: ColumnType) -> bool:
    return isinstance(type_, DecimalType) or type_ in map(ScalarType, ("INT", "BIGINT", "DOUBLE"))


def _is_text(type_: ColumnType) -> bool:
    return type_ == ScalarType("STRING")
