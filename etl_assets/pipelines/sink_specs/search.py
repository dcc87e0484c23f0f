"""A sink of type search: an index of OpenSearch, or of an engine with its API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from etl_assets.pipelines.sink_specs.base import BaseSinkSpec


class SearchSinkSpec(BaseSinkSpec):
    """Documents in a search engine, by key: an older delivery never replaces a newer document.

    `index` is an alias; the platform creates it, and the index behind it. New columns are added.
    """

    connection_type: ClassVar[str] = "search"
    kind: ClassVar[str] = "opensearch"
    type: Literal["search"]
    index: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9][a-z0-9._-]{0,199}$",
            examples=["film_rating_agg"],
            description="the name that readers search",
        ),
    ]
    mappings: Annotated[
        Mapping[str, Mapping[str, Any]],
        Field(
            examples=[{"title": {"type": "text"}}],
            description="fields, as the engine spells them, that replace the default of their columns",
        ),
    ] = {}
    settings: Annotated[
        Mapping[str, Any],
        Field(
            examples=[{"number_of_shards": 3}],
            description="settings of the index when it is created, as the engine spells them",
        ),
    ] = {}

    @property
    def target_field(self) -> str:
        """The field that names the target."""
        return "index"

    @property
    def target_name(self) -> str:
        """The alias."""
        return self.index
