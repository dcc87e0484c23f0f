"""Settings of the failure domains: location, role, placement policy and health checks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.stores.circuit_breaker import DEFAULT_TIMEOUT_SECONDS
from etl_assets.placement.site import Site, is_folder
from etl_assets.settings.section import Section, expect_storage

DOMAIN_NAME = r"^[a-z0-9][a-z0-9-]*(/[a-z0-9][a-z0-9-]*){0,2}$"
_BUCKET = re.compile(r"(s3|az)://[a-z0-9][a-z0-9.-]+(/[A-Za-z0-9._=/-]*)?")


class DomainSettings(Section):
    """One failure domain."""

    name: Annotated[
        str,
        Field(
            pattern=DOMAIN_NAME,
            examples=["aws/eu-1/a", "local"],
            description="provider/region[/zone], or any lower-case name",
        ),
    ]
    root: Annotated[
        str,
        Field(
            min_length=1,
            examples=["data", "s3://bucket/prefix"],
            description="storage root: a folder, relative to the home folder; or `s3://bucket/prefix` or"
            " `az://container/prefix`, which vote and hold copies, and never lead",
        ),
    ]
    role: Annotated[
        Role,
        Field(
            description="voter: data, counts for a majority, may lead; witness: counts, holds no data;"
            " learner: data, does not count"
        ),
    ] = Role.VOTER

    @field_validator("root")
    @classmethod
    def _known_kind(cls, value: str) -> str:
        if is_folder(value):
            expect_storage(value)
        if is_folder(value) or _BUCKET.fullmatch(value):
            return value
        if value.startswith("gs://"):
            raise ValueError(
                "Google Cloud Storage is not among the stores whose conditional writes were tried: use a"
                " folder, s3://bucket/prefix or az://container/prefix"
            )
        raise ValueError(
            "it is neither a folder nor s3://bucket/prefix nor az://container/prefix; credentials and options"
            " come by the store's environment variables"
        )

    def site(self, home: Path) -> Site:
        """Return the domain with an absolute root."""
        root = str(home / self.root) if is_folder(self.root) else self.root.rstrip("/")
        return Site(name=self.name, root=root, role=self.role)


Names = Annotated[
    tuple[str, ...],
    Field(
        description="domains that may run the stage, or outer names (`aws` for all of its regions); `*`: any"
    ),
]


class PlacementSettings(Section):
    """Which domains may run which stage. A domain that is not named never does, whatever the outage."""

    ingest: Names = ("*",)
    transform: Names = ("*",)
    sink: Names = ("*",)


class HealthSettings(Section):
    """How the failure domains are watched."""

    timeout_seconds: Annotated[
        float,
        Field(gt=0, le=300, description="a domain that answers nothing within this time hangs"),
    ] = DEFAULT_TIMEOUT_SECONDS
