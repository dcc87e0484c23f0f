"""A secret in the platform file: a reference to an environment variable or a file, never the value.

The value is read where a connection is opened, so that settings can be shown, and a changed value needs no
restart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from etl_assets.environment import value_of
from etl_assets.errors import SettingsError
from etl_assets.settings.secret_key import decrypted, encrypted

_REFERENCE = re.compile(r"\$\{(?:(?:env:)?[A-Za-z_][A-Za-z0-9_]*|file:/[^${}]+|encrypted:[A-Za-z0-9_=-]+)\}")
_VARIABLE, _FILE, _ENCRYPTED = "env:", "file:", "encrypted:"
_MAX_BYTES = 65_536
NO_REFERENCE = (
    "a secret does not stand in the file; write `${NAME}`, an environment variable, or"
    " `${file:/run/secrets/name}`"
)
"""What is said of a value in place of a reference."""

_HOLDS_CREDENTIALS = re.compile(r"authorization|cookie|token|secret|api-?key|password", re.IGNORECASE)


class Secret(str):
    """The text `${NAME}`, `${env:NAME}` or `${file:/path}`. A value in its place is refused, and not shown.

    `${encrypted:…}` is what the server makes of a value that came over REST.
    """

    __slots__ = ()

    @property
    def reference(self) -> str:
        """What is between the braces: the name of the environment variable, `file:` and a path, or
        `encrypted:` and a text.
        """
        return self[2:-1].removeprefix(_VARIABLE)

    @property
    def variable(self) -> str | None:
        """The name of the environment variable; None if it is no variable."""
        return None if self.reference.startswith((_FILE, _ENCRYPTED)) else self.reference

    @property
    def path(self) -> Path | None:
        """The file; None if it is in none."""
        return self._path if self.reference.startswith(_FILE) else None

    @property
    def is_encrypted(self) -> bool:
        """Whether the server has encrypted it."""
        return self.reference.startswith(_ENCRYPTED)

    @classmethod
    def of_value(cls, value: str) -> Secret:
        """Return the reference that holds a value, encrypted.

        Raises:
            SettingsError: there is no key.
        """
        return cls(f"${{{_ENCRYPTED}{encrypted(value)}}}")

    @property
    def label(self) -> str:
        """Where the secret is, for messages."""
        if self.is_encrypted:
            return "an encrypted secret"
        is_file = self.reference.startswith(_FILE)
        return f"the file {self._path}" if is_file else f"the environment variable {self.reference}"

    def value(self, environ: Mapping[str, str] | None = None) -> str:
        """Return the secret: the variable's value, or the file's text without the line feed at its end.

        Raises:
            SettingsError: the variable is not set, the file cannot be read, or no key decrypts it.
        """
        if self.is_encrypted:
            return decrypted(self.reference.removeprefix(_ENCRYPTED), environ)
        if self.reference.startswith(_FILE):
            return self._content()
        found = value_of(self.reference, environ)
        if found is None:
            raise self._unusable("is not set", f"set {self.reference} where the platform runs")
        return found

    @property
    def _path(self) -> Path:
        return Path(self.reference.removeprefix(_FILE))

    def _content(self) -> str:
        fix = "mount the secret there, readable for the user of the platform's processes"
        try:
            with self._path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
            text = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise self._unusable(f"cannot be read: {error.strerror}", fix) from error
        except UnicodeDecodeError:
            raise self._unusable("is not text in UTF-8", fix) from None
        if not text or len(content) > _MAX_BYTES:
            raise self._unusable("is empty" if not text else f"has more than {_MAX_BYTES:,} bytes", fix)
        return text

    def _unusable(self, why: str, fix: str) -> SettingsError:
        return SettingsError(f"{self.label}, which a connection names, {why}", fix=fix, field=self.reference)

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
            raise ValueError(NO_REFERENCE)
        return cls(value)


class TextWithSecrets(str):
    """A text with secrets in it: `Bearer ${TOKEN}`, `Bearer ${file:/run/secrets/token}`."""

    __slots__ = ()

    @property
    def references(self) -> tuple[Secret, ...]:
        """The references in it."""
        return tuple(Secret(found[0]) for found in _REFERENCE.finditer(self))

    def value(self, environ: Mapping[str, str] | None = None) -> str:
        """Return the text with the secrets in place of the references.

        Raises:
            SettingsError: a variable is not set, or a file cannot be read.
        """
        return _REFERENCE.sub(lambda found: Secret(found[0]).value(environ), self)


def holds_credentials(header: str) -> bool:
    """Return whether a header of HTTP holds credentials, by its name."""
    return _HOLDS_CREDENTIALS.search(header) is not None
