"""What all connections have: targets that may be written, secrets, and hosts that one over REST may reach.

Belongs here: the base class, and the types of its fields. Does not belong here: types of connections
(`connections.py`).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PrivateAttr, field_validator

from etl_assets.settings.allowed_hosts import AllowedHosts
from etl_assets.settings.secret import Secret
from etl_assets.settings.section import Section, expect_storage


def _host(value: str) -> str:
    if "/" in value or "@" in value or any(each.isspace() for each in value):
        raise ValueError("it is not a host; give its name or address alone, and user and port by themselves")
    return value


def no_credentials(value: str) -> str:
    if "@" in value or "?" in value:
        raise ValueError("an address has neither credentials nor options; give them in fields of their own")
    return value


def _path(value: str) -> str:
    expect_storage(value)
    return value


Host = Annotated[str, AfterValidator(_host), Field(min_length=1, max_length=255, examples=["localhost"])]
Port = Annotated[int, Field(ge=1, le=65_535)]
Address = Annotated[str, AfterValidator(no_credentials), Field(min_length=1, max_length=2_000)]
FilePathText = Annotated[str, AfterValidator(_path), Field(min_length=1, examples=["exports"])]


class Endpoint(NamedTuple):
    """A host and port that a connection names, and the field that does."""

    field: str
    host: str
    port: int


def endpoint_of(field: str, url: str, *, http_port: int = 80) -> Endpoint:
    """Return the endpoint of an address.

    Raises:
        ValueError: it has no host, or a port that is none.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it is not the address of a server; such as `https://db.example.com`")
    return Endpoint(field, parts.hostname, parts.port or (443 if parts.scheme == "https" else http_port))


class Connection(Section):
    """A system outside the platform."""

    _allowed: AllowedHosts | None = PrivateAttr(default=None)

    write: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=200)], ...],
        Field(
            examples=["analytics.*"],
            description="what pipelines may write: names with `*`, `?` and `[…]`; by default nothing",
        ),
    ] = ()
    max_concurrency: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_000,
            description="most steps that read or write by it at the same time, over all processes of this"
            " home folder; by default any number",
        ),
    ] = None
    max_concurrency_per_target: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_000,
            description="most deliveries to one target (a table, topic, index, folder or path) at the same"
            " time; by default any number",
        ),
    ] = None

    @field_validator("write", mode="before")
    @classmethod
    def _one_is_enough(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def allows(self, target: str) -> bool:
        """Return whether pipelines may write a target: a table, topic, index or folder, by its name."""
        if ".." in target.split("/"):
            return False
        return any(fnmatchcase(target, each) for each in self.write)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the hosts that it names.

        Raises:
            ValueError: an address has no host.
        """
        return ()

    def limited_to(self, allowed: AllowedHosts) -> Self:
        """Return the connection that reaches allowed hosts only."""
        made = self.model_copy()
        made._allowed = allowed
        return made

    @property
    def is_limited(self) -> bool:
        """Whether it reaches allowed hosts only: it came over REST."""
        return self._allowed is not None

    def address_of(self, host: str, port: int) -> str | None:
        """Return the address to connect to; None if the client may resolve the host by itself.

        Raises:
            SettingsError: the host, or an address of it, is not allowed.
            OSError: the host has no address now.
        """
        return None if self._allowed is None else self._allowed.address(host, port)

    def secrets(self) -> tuple[Secret, ...]:
        """Return the references to its secrets, for messages in which their values must not stand."""
        sections = (self, *(value for _, value in self if isinstance(value, Section)))
        return tuple(value for section in sections for _, value in section if isinstance(value, Secret))
