"""Sinks of types folder and object_store: Parquet files and a manifest."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from etl_assets.pipelines.sink_specs.base import BaseSinkSpec


class FilesSinkSpec(BaseSinkSpec):
    """What both have."""

    kind: ClassVar[str] = "parquet"
    target: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*$",
            max_length=200,
            examples=["marts/suppliers"],
            description="folder of the dataset below the connection's",
        ),
    ]
    partition_by: Annotated[
        tuple[str, ...] | None,
        Field(description="columns that files are divided by; by default those of the table"),
    ] = None
    retention_hours: Annotated[
        float,
        Field(
            ge=1, le=8_760, description="how long files stay after they were replaced: longer than a reader"
        ),
    ] = 24

    @property
    def target_field(self) -> str:
        """The field that names the target."""
        return "target"

    @property
    def target_name(self) -> str:
        """The folder."""
        return self.target


class FolderSinkSpec(FilesSinkSpec):
    """Parquet files in a folder of this machine, exactly once for readers of the newest manifest."""

    connection_type: ClassVar[str] = "folder"
    type: Literal["folder"]


class ObjectStoreSinkSpec(FilesSinkSpec):
    """Parquet files in an object store, exactly once for readers of the newest manifest."""

    connection_type: ClassVar[str] = "object_store"
    type: Literal["object_store"]
