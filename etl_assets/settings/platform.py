"""The whole platform file: its sections, and the rules between them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, Field, field_validator, model_validator

from etl_assets.installed import Installed, built_in_catalog, installed
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.connection_rights import ConnectionRights
from etl_assets.pipelines.dagster_names import owner
from etl_assets.pipelines.dagster_project import defs_folder
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.pipelines.rest_rights import RestRights
from etl_assets.placement.domain_registry import DomainRegistry
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.placement.observations import Observations
from etl_assets.placement.policy import PlacementPolicy, covers
from etl_assets.placement.probes import Watch
from etl_assets.placement.undeclared_tables import TablesUnderRoots
from etl_assets.settings.connections import CONNECTION_NAME, AnyConnection
from etl_assets.settings.control import ControlSettings
from etl_assets.settings.domains import DomainSettings, HealthSettings, PlacementSettings
from etl_assets.settings.landing import LandingSettings
from etl_assets.settings.pipelines import PipelineSettings
from etl_assets.settings.rest import RestSettings
from etl_assets.settings.rest_connections import RestConnection, read_rest_connections
from etl_assets.settings.runs import RunSettings, UpkeepSettings, WorkerSettings
from etl_assets.settings.section import Section
from etl_assets.settings.serve import ServeSettings
from etl_assets.settings.spark import SparkSettings

_UNUSABLE_IN_ROOTS = re.compile(r"[*?\[\]{}\\%]")


class Settings(Section):
    """The whole platform file, with paths made absolute by `load_settings`."""

    home: Annotated[Path, Field(description="set by ETL_ASSETS_HOME, not in the file")]
    start_date: Annotated[dt.date, Field(description="first day of the daily partitions")] = dt.date(
        2026, 1, 1
    )
    owners: Annotated[
        tuple[Annotated[str, AfterValidator(owner)], ...],
        Field(
            examples=["team:data-platform", "a.name@example.org"],
            description="owners of the assets: e-mail addresses or `team:name`",
        ),
    ] = ("team:data-platform",)
    domains: Annotated[
        tuple[DomainSettings, ...],
        Field(
            min_length=1,
            max_length=9,
            description="tables are mirrored over all of them if there are several",
        ),
    ] = (DomainSettings(name="local", root="data"),)
    placement_policy: PlacementSettings = PlacementSettings()
    health: HealthSettings = HealthSettings()
    upkeep: UpkeepSettings = UpkeepSettings()
    landing: LandingSettings = LandingSettings()
    reference: Annotated[
        dict[str, Path | None],
        Field(
            description="CSV files with reference data, by table; default `_reference/<table>.csv` in"
            " landing",
        ),
    ] = {}  # noqa: RUF012 - pydantic gives each instance its own
    spark: SparkSettings = SparkSettings()
    runs: RunSettings = RunSettings()
    worker: Annotated[
        WorkerSettings,
        # `follow` is the section's former name, which is read for one release.
        Field(validation_alias=AliasChoices("worker", "follow")),
    ] = WorkerSettings()
    pipelines: PipelineSettings = PipelineSettings()
    serve: ServeSettings = ServeSettings()
    rest: RestSettings = RestSettings()
    control: ControlSettings = ControlSettings()
    file_connections: Annotated[
        dict[Annotated[str, Field(pattern=CONNECTION_NAME, max_length=64)], AnyConnection],
        Field(
            # Its own name is for settings that one process passes to another.
            validation_alias=AliasChoices("connections", "file_connections"),
            examples=["warehouse: {type: postgres, …}"],
            description="systems outside the platform, by name, and what pipelines may write there",
        ),
    ] = {}  # noqa: RUF012 - pydantic gives each instance its own

    @field_validator("reference")
    @classmethod
    def _of_reference_tables(cls, value: dict[str, Path | None]) -> dict[str, Path | None]:
        known = built_in_catalog().reference
        if unknown := [name for name in value if name not in known]:
            raise ValueError(f"{unknown[0]!r} is no table with reference data; there are {', '.join(known)}")
        return value

    @model_validator(mode="after")
    def _domains_make_sense(self) -> Settings:
        sites = [each.site(self.home) for each in self.domains]
        names = [site.name for site in sites]
        for what, values in (("name", names), ("root", [site.root for site in sites])):
            if twice := [value for value in values if values.count(value) > 1]:
                raise ValueError(f"domains: the {what} {twice[0]} stands twice; each domain has its own")
        for site in sites:
            if site.is_folder and (found := _UNUSABLE_IN_ROOTS.search(site.root)):
                raise ValueError(
                    f"domains: the root {site.root} holds {found[0]!r}, which Spark takes for a pattern or an"
                    " escape; choose another folder, or another ETL_ASSETS_HOME"
                )
        if not any(site.role is Role.VOTER for site in sites):
            raise ValueError(
                "domains: none is a voter, so nothing can be written; give one at least the role voter"
            )
        leaders = [site.name for site in sites if site.may_lead]
        if not leaders:
            raise ValueError(
                "domains: no voter has a folder for its root, and none may lead on an object store, where"
                " Spark does not write; give one voter at least a folder"
            )
        for stage in PlacementClass:
            allowed = getattr(self.placement_policy, stage.value)
            if unknown := [name for name in allowed if not any(covers(name, each) for each in names)]:
                raise ValueError(
                    f"placement_policy.{stage}: {unknown[0]} is no domain; there are {', '.join(names)}"
                )
            if not any(covers(name, leader) for name in allowed for leader in leaders):
                raise ValueError(
                    f"placement_policy.{stage} allows no voter that may lead; name one of"
                    f" {', '.join(leaders)} (object stores only vote)"
                )
        return self

    @property
    def landing_path(self) -> Path:
        """The landing folder, absolute."""
        return self.home / self.landing.path

    def reference_file(self, table: str) -> Path:
        """Return the file that a table with reference data is loaded from, absolute. It may be absent."""
        return self.home / (self.reference.get(table) or self.landing.path / "_reference" / f"{table}.csv")

    @property
    def turns_path(self) -> Path:
        """Folder of the locks of the tables' queues, for processes of this machine."""
        return self.home / "turns"

    @property
    def slots_path(self) -> Path:
        """Folder of the slots of connections, for processes of this machine."""
        return self.home / "slots"

    @property
    def dagster_home(self) -> Path:
        """Folder of the Dagster instance."""
        return self.home / "dagster"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Warnings about settings that are allowed but usually unintended, as sentences."""
        if len(self.domains) == 1:
            return ()
        roles = [each.role for each in self.domains]
        voters, witnesses = roles.count(Role.VOTER), roles.count(Role.WITNESS)
        if voters == 1:
            return (
                "domains: there is one voter; nothing goes on while it is down, and its loss loses data, as"
                " witnesses hold none and learners may be behind; three voters, or two and a witness, can do"
                " without any one of them",
            )
        votes = voters + witnesses
        if votes % 2:
            return ()
        lost = "either of them is down" if votes == 2 else f"{votes // 2} of them are down"
        whose = f"{voters} voters and {witnesses or 'no'} {'witness' if witnesses < 2 else 'witnesses'}"
        return (
            f"domains: {votes} votes of {whose} cannot go on while {lost}; one more voter, or a witness,"
            " would let them",
        )

    @property
    def defs_folders(self) -> tuple[Path, ...]:
        """Defs folders of Dagster projects with pipelines, absolute."""
        if self.pipelines.defs_folders is not None:
            return tuple(self.home / each for each in self.pipelines.defs_folders)
        found = defs_folder(self.home.parent)
        return () if found is None else (found,)

    def installed(self) -> Installed:
        """Return the pipelines of the installation, and what declares some: files, and clients over REST."""
        return installed(
            self.home,
            self.pipelines.built_in,
            self.defs_folders,
            self.connection_rights,
            self.rest_rights,
            self.pipelines.python_modules,
        )

    @property
    def connections(self) -> Mapping[str, AnyConnection]:
        """All connections by name: those of the platform file, and those over REST that can be used."""
        usable = {
            each.name: each.connection for each in self.rest_connections() if each.connection is not None
        }
        return {**usable, **self.file_connections}

    def rest_connections(self) -> tuple[RestConnection, ...]:
        """Return the connections that are defined over REST, those with problems included."""
        return read_rest_connections(self.home, self.rest, frozenset(self.file_connections))

    @property
    def connection_rights(self) -> tuple[ConnectionRights, ...]:
        """What each connection allows."""
        tenants = {each.name: each.tenant for each in self.rest_connections()}
        return tuple(
            ConnectionRights(
                name=name,
                type=each.type,
                write=each.write,
                allows=each.allows,
                tenant=None if name in self.file_connections else tenants[name],
            )
            for name, each in self.connections.items()
        )

    @property
    def rest_rights(self) -> RestRights:
        """What declarations that come over REST may use."""
        rest = self.rest
        return RestRights(
            variables=rest.variables,
            modules=rest.modules,
            connections=rest.connections,
            read=rest.read,
            write=rest.write,
            folders=rest.folders,
            own=frozenset((each.tenant, each.name) for each in self.rest_connections()),
        )

    def catalog(self) -> Catalog:
        """Return the pipelines of the installation, and all tables."""
        return self.installed().catalog

    def placement(self, declared: Catalog | None = None) -> Placement:
        """Return the configured failure domains and the placement policy.

        Args:
            declared: The pipelines of the installation; None: they are looked for, which looks at each file.
        """
        sites = tuple(each.site(self.home) for each in self.domains)
        observations = Observations(self.home / "health.json")
        watch = Watch(
            memory=DomainRegistry(self.home / "domains.json"),
            observations=observations,
            timeout_seconds=self.health.timeout_seconds,
        )
        declared = declared or self.catalog()
        catalog = declared.with_undeclared(
            TablesUnderRoots(sites=sites, watch=watch, declared=frozenset(declared.names))
        )
        return Placement(
            domains=tuple(
                FailureDomain(
                    name=site.name,
                    root=Path(site.root),
                    sites=sites if len(sites) > 1 else (),
                    observations=observations,
                    timeout_seconds=self.health.timeout_seconds,
                    keep_log_versions=self.upkeep.keep_log_versions,
                    catalog=catalog,
                )
                for site in sites
                if site.is_folder
            ),
            sites=sites,
            watch=watch,
            policy=PlacementPolicy(
                allowed={stage: getattr(self.placement_policy, stage.value) for stage in PlacementClass}
            ),
        )
