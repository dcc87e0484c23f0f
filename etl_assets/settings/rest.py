"""Settings of declarations that come over REST: what they may use of the server's machine."""

from __future__ import annotations

import ipaddress
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field, field_validator

from etl_assets.settings.allowed_hosts import AllowedHosts
from etl_assets.settings.section import Section

_TARGET = r"^(\*|[a-z*][a-z0-9_*?-]*/.+)$"


class RestSettings(Section):
    """What declarations that come over REST may use. Those in files may use everything."""

    variables: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...],
        Field(
            examples=["[LANDING_BUCKET]"],
            description="environment variables that `${NAME}` may stand for; by default none",
        ),
    ] = ()
    modules: Annotated[
        tuple[str, ...],
        Field(
            examples=["[shop.transforms]"],
            description="Python modules whose functions transforms may name; by default none",
        ),
    ] = ()
    connections: Annotated[
        tuple[str, ...],
        Field(
            examples=["[warehouse]", "['*']"],
            description="connections that sources and sinks may name; `*`: all; by default none",
        ),
    ] = ()
    read: Annotated[
        tuple[Annotated[str, Field(pattern=_TARGET)], ...],
        Field(
            examples=["[broker/public.*, lake/incoming/*]"],
            description="what sources may read by those connections, as `connection/name` with `*`, `?` and"
            " `[…]`: topics, and paths of object stores. Queries need `connection/*`. By default all",
        ),
    ] = ("*",)
    write: Annotated[
        tuple[Annotated[str, Field(pattern=_TARGET)], ...],
        Field(
            examples=["[warehouse/analytics.*, search/films-*]"],
            description="what sinks may write by those connections, the same way: tables with their schema,"
            " indexes, topics, folders, paths. `write` of the connection counts as well. By default all",
        ),
    ] = ("*",)
    folders: Annotated[
        tuple[str, ...],
        Field(
            examples=["[landing]"],
            description="folders, relative to the home folder, whose files sources may read",
        ),
    ] = ("landing",)
    max_pipelines: Annotated[
        int, Field(ge=0, le=10_000, description="most pipelines that a tenant may declare over REST")
    ] = 100

    hosts: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9*?][A-Za-z0-9.*?:_-]*:(\d{1,5}|\*)$")], ...],
        Field(
            examples=["[db.example.com:5432, '*.example.com:443']"],
            description="hosts that connections over REST may reach, as `host:port` with `*` and `?`; by"
            " default none",
        ),
    ] = ()
    networks: Annotated[
        tuple[str, ...],
        Field(
            examples=["[127.0.0.0/8]"],
            description="networks of loopback, link-local and metadata addresses that these hosts may have;"
            " by default none",
        ),
    ] = ()
    secrets: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...],
        Field(
            examples=["[WAREHOUSE_PASSWORD]"],
            description="environment variables that connections over REST may take secrets from; by default"
            " none",
        ),
    ] = ()
    secret_folders: Annotated[
        tuple[Annotated[str, Field(pattern=r"^/.+")], ...],
        Field(
            examples=["[/run/secrets]"],
            description="folders, absolute, whose files connections over REST may take secrets and"
            " certificates from; by default none",
        ),
    ] = ()
    max_connections: Annotated[
        int, Field(ge=0, le=10_000, description="most connections that a tenant may define over REST")
    ] = 100

    @property
    def allowed_hosts(self) -> AllowedHosts:
        """What connections over REST may reach."""
        return AllowedHosts(hosts=self.hosts, networks=self.networks)

    @field_validator("networks")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            try:
                ipaddress.ip_network(each)
            except ValueError:
                raise ValueError(f"{each!r} is no network; such as `127.0.0.0/8`") from None
        return value

    @field_validator("folders")
    @classmethod
    def _are_relative(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            path = PurePosixPath(each)
            if path.is_absolute() or ".." in path.parts or each.startswith("~") or not path.parts:
                raise ValueError(f"{each!r} is no folder in the home folder; such as `landing`")
        return value
