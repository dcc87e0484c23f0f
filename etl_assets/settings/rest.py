"""Settings of declarations that come over REST: what they may use of the server's machine."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field, field_validator

from etl_assets.settings.section import Section


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
    folders: Annotated[
        tuple[str, ...],
        Field(
            examples=["[landing]"],
            description="folders, relative to the home folder, whose files sources may read",
        ),
    ] = ("landing",)

    @field_validator("folders")
    @classmethod
    def _are_relative(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            path = PurePosixPath(each)
            if path.is_absolute() or ".." in path.parts or each.startswith("~") or not path.parts:
                raise ValueError(f"{each!r} is no folder in the home folder; such as `landing`")
        return value
