"""A secret in the platform file: a reference to an environment variable, never the value.

The value is read where a connection is opened, so that settings can be shown, and a changed value needs no
restart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from etl_assets.environment import value_of
from etl_assets.errors import SettingsError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


_HOLDS_CREDENTIALS = re.compile(r"authorization|cookie|token|secret|api-?key|password", re.IGNORECASE)


class Secret(str):
    """The text `${NAME}`. A value written in its place is refused without being shown."""

    __slots__ = ()

    @property
    def variable(self) -> str:
        """The environment variable."""
        return self[2:-1]

    def value(self, environ: Mapping[str, str] | None = None) -> str:
        """Return the secret.

        Raises:
            SettingsError: the variable is not set.
        """
        found = value_of(self.variable, environ)
        if found is None:
            raise SettingsError(
                f"the environment variable {self.variable}, which a connection names, is not set",
                fix=f"set {self.variable} where the platform runs",
                field=self.variable,
            )
        return found

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Accept a reference only."""
        return core_schema.no_info_plain_validator_function(
            cls._validated, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe it as a text of a form."""
        return {"type": "string", "pattern": f"^{_REFERENCE.pattern}$"}

    @classmethod
    def _validated(cls, value: Any) -> Secret:
        if not isinstance(value, str) or not _REFERENCE.fullmatch(value):
            raise ValueError("a secret does not stand in the file; write `${NAME}`, an environment variable")
        return cls(value)


class TextWithSecrets(str):
    """A text in which `${NAME}` stands for an environment variable: `Bearer ${TOKEN}`."""

    __slots__ = ()

    @property
    def references(self) -> tuple[Secret, ...]:
        """The references in it."""
        return tuple(Secret(found[0]) for found in _REFERENCE.finditer(self))

    def value(self, environ: Mapping[str, str] | None = None) -> str:
        """Return the text with the values of the variables.

        Raises:
            SettingsError: a variable is not set.
        """
        return _REFERENCE.sub(lambda found: Secret(found[0]).value(environ), self)


def holds_credentials(header: str) -> bool:
    """Return whether a header of HTTP holds credentials, by its name."""
    return _HOLDS_CREDENTIALS.search(header) is not None
