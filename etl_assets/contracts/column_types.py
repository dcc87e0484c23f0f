"""Column types: the closed set of Spark types that a contract may use, parsed from and written as DDL text.

Belongs here: the meaning of `DECIMAL(18,2)` or `MAP<STRING, DATE>`, without Spark. Does not belong here:
pyspark's own type objects (`spark_types.py`), and which column has which type (`tables/`).

A type has one spelling (upper case, one space after a comma between fields), so equal types are equal as
text. DOUBLE is there for measurements in tables that users declare. It is no type of a key or a Delta
partition, and files have no bounds of it: NaN and rounding have no place in a count or a comparison of keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from etl_assets.errors import ContractError

SCALARS = ("STRING", "INT", "BIGINT", "TIMESTAMP", "DATE", "BOOLEAN", "DOUBLE")
MAX_DECIMAL_PRECISION = 38
"""The limit of Spark and Delta."""

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|[<>(),:]|\S")
_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One of `SCALARS`."""

    name: str

    @property
    def ddl(self) -> str:
        """The type as DDL text."""
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A number of at most `precision` digits, `scale` of them after the decimal point."""

    precision: int
    scale: int

    @property
    def ddl(self) -> str:
        """The type as DDL text."""
        return f"DECIMAL({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list. Its elements may be null, as Delta reads them back."""

    element: ColumnType

    @property
    def ddl(self) -> str:
        """The type as DDL text."""
        return f"ARRAY<{self.element.ddl}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map. Its keys are never null, its values may be, as Delta reads them back."""

    key: ColumnType
    value: ColumnType

    @property
    def ddl(self) -> str:
        """The type as DDL text."""
        return f"MAP<{self.key.ddl}, {self.value.ddl}>"


@dataclass(frozen=True, slots=True)
class StructType:
    """Named fields; each may be null."""

    fields: tuple[tuple[str, ColumnType], ...]

    @property
    def ddl(self) -> str:
        """The type as DDL text."""
        return f"STRUCT<{', '.join(f'{name}: {type_.ddl}' for name, type_ in self.fields)}>"


ColumnType = ScalarType | DecimalType | ArrayType | MapType | StructType


@cache
def parse(ddl: str) -> ColumnType:
    """Parse the DDL text of a type.

    Args:
        ddl: A type in its only spelling, such as `MAP<STRING, DECIMAL(18,2)>`.

    Raises:
        ContractError: the text is not a type of the closed set, or has another spelling.
    """
    parsed = _Parser(ddl).whole()
    if parsed.ddl != ddl:
        raise ContractError(
            f"the type {ddl!r} is not in its one spelling",
            fix=f"write {parsed.ddl!r}",
            found=ddl,
            expected=parsed.ddl,
        )
    return parsed


def canonical(ddl: str) -> str:
    """Return the only spelling of a type that is written in any case and with spaces anywhere.

    Raises:
        ContractError: the text is not a type of the closed set.
    """
    return _Parser(ddl).whole().ddl


class _Parser:
    """Recursive descent over one type text."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens: Iterator[str] = iter(_TOKEN.findall(ddl))
        self._token = next(self._tokens, "")

    def whole(self) -> ColumnType:
        parsed = self._type()
        if self._token:
            raise self._unknown()
        return parsed

    def _type(self) -> ColumnType:
        name = self._take().upper()
        if name in SCALARS:
            return ScalarType(name)
        match name:
            case "DECIMAL":
                return self._decimal()
            case "ARRAY":
                self._expect("<")
                array = ArrayType(self._type())
                self._expect(">")
                return array
            case "MAP":
                self._expect("<")
                key = self._type()
                self._expect(",")
                map_ = MapType(key, self._type())
                self._expect(">")
                return map_
            case "STRUCT":
                return self._struct()
            case _:
                raise self._unknown()

    def _decimal(self) -> DecimalType:
        self._expect("(")
        precision = self._number()
        self._expect(",")
        scale = self._number()
        self._expect(")")
        if not (1 <= precision <= MAX_DECIMAL_PRECISION and scale <= precision):
            raise self._unknown()
        return DecimalType(precision, scale)

    def _struct(self) -> StructType:
        self._expect("<")
        fields = [self._field()]
        while self._token == ",":
            self._expect(",")
            fields.append(self._field())
        self._expect(">")
        if len({name for name, _ in fields}) < len(fields):
            raise self._unknown()
        return StructType(tuple(fields))

    def _field(self) -> tuple[str, ColumnType]:
        name = self._take()
        if not _FIELD_NAME.fullmatch(name):
            raise self._unknown()
        self._expect(":")
        return name, self._type()

    def _number(self) -> int:
        token = self._take()
        if not token.isdecimal():
            raise self._unknown()
        return int(token)

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise self._unknown()

    def _take(self) -> str:
        token, self._token = self._token, next(self._tokens, "")
        return token

    def _unknown(self) -> ContractError:
        return ContractError(
            f"{self._ddl!r} is not a type a contract may use",
            fix=f"use {', '.join(SCALARS)}, DECIMAL(precision,scale), ARRAY<type>, MAP<type, type>"
            " or STRUCT<name: type, ...>",
            found=self._ddl,
        )
