"""The platform file, validated: folders, domains, limits, Spark. One pydantic model a concern.

A wrong field stops at load with its name, the value found and what is allowed. Environment variables are in
`environment.py`.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from etl_assets import environment
from etl_assets.errors import SettingsError
from etl_assets.mirroring.locator import Role
from etl_assets.mirroring.time_limit import DEFAULT_TIMEOUT_SECONDS
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.placement.memory import DomainsMemory
from etl_assets.placement.observations import Observations
from etl_assets.placement.policy import PlacementPolicy, Stage, covers
from etl_assets.placement.site import Site, is_folder
from etl_assets.placement.watch import Watch

DOMAIN_NAME = r"^[a-z0-9][a-z0-9-]*(/[a-z0-9][a-z0-9-]*){0,2}$"
SPARK_MEMORY = r"^[1-9][0-9]*[mg]$"
MIN_KEPT_VERSIONS = 100
"""So many of a table's last commits are looked at for cursors."""
OWNED_SPARK_SETTINGS = (
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
    "spark.sql.session.timeZone",
)


class Section(BaseModel):
    """A part of the platform file: immutable, and an unknown field is an error."""

    # What was given is shown by `_explain`, without secrets.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class DomainSettings(Section):
    """One failure domain."""

    name: Annotated[
        str, Field(pattern=DOMAIN_NAME, description="provider/region[/zone], or any lower-case name")
    ]
    root: Annotated[
        str,
        Field(
            min_length=1,
            description="storage root: a folder, relative to the home folder; or `s3://bucket/prefix` or"
            " `az://container/prefix`, which vote and hold copies, and never lead",
        ),
    ]
    role: Annotated[
        Role,
        Field(
            description="voter: data, counts for a majority, may lead; witness: counts, holds no data; learner: data,"
            " does not count"
        ),
    ] = Role.VOTER

    @field_validator("root")
    @classmethod
    def _known_kind(cls, value: str) -> str:
        if is_folder(value) or _BUCKET.fullmatch(value):
            return value
        if value.startswith("gs://"):
            raise ValueError(
                "Google Cloud Storage is not among the stores whose conditional writes were tried: use a folder, s3://bucket/prefix"
                " or az://container/prefix"
            )
        raise ValueError(
            "it is neither a folder nor s3://bucket/prefix nor az://container/prefix; credentials and options come by the"
            " store's environment variables"
        )

    def site(self, home: Path) -> Site:
        """The domain with its root made absolute."""
        root = str(home / self.root) if is_folder(self.root) else self.root.rstrip("/")
        return Site(name=self.name, root=root, role=self.role)


Names = Annotated[
    tuple[str, ...],
    Field(
        description="domains that may run the stage, or outer names (`aws` for all of its regions); `*`: any"
    ),
]


_BUCKET = re.compile(r"(s3|az)://[a-z0-9][a-z0-9.-]+(/[A-Za-z0-9._=/-]*)?")
_CREDENTIALS = re.compile(r"(?<=://)[^\s'\"]*@|(?<=[^\s'\"]\?)[^\s'\"]*=[^\s'\"]*")
_UNUSABLE_IN_ROOTS = re.compile(r"[*?\[\]{}\\%]")


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


class UpkeepSettings(Section):
    """What the round that looks after mirrored tables removes by itself."""

    keep_log_versions: Annotated[
        int,
        Field(
            ge=MIN_KEPT_VERSIONS,
            description="versions of a mirrored table that stay readable; older log entries go, in every domain. Data files"
            " stay until `tables vacuum`",
        ),
    ] = 10_000


class LandingSettings(Section):
    """The landing folder and what is accepted from it."""

    path: Annotated[Path, Field(description="landing folder; relative to the home folder")] = Path("landing")
    settle_seconds: Annotated[
        float, Field(ge=0, le=3600, description="a file is read once it has not changed for this long")
    ] = 2.0
    max_record_bytes: Annotated[
        int, Field(ge=1_024, le=16_777_216, description="longer lines are dead letters")
    ] = 1_048_576
    max_batch_bytes: Annotated[
        int, Field(ge=1_048_576, description="input of one batch, compressed size")
    ] = 1_073_741_824
    earliest_event_time: Annotated[dt.date, Field(description="earlier event times are dead letters")] = (
        dt.date(2000, 1, 1)
    )
    max_clock_skew_hours: Annotated[
        int, Field(ge=0, le=8_760, description="how far after its arrival day an event's time may be")
    ] = 24


class ReferenceSettings(Section):
    """Reference data loaded from files."""

    customers: Annotated[
        Path | None,
        Field(
            description="CSV with customer_id, customer_region; default `_reference/customers.csv` in landing"
        ),
    ] = None


class JvmStart(StrEnum):
    """What Spark's JVM is started for."""

    AUTO = "auto"
    QUICK = "quick"
    FULL = "full"


class SparkSettings(Section):
    """How Spark is started or reached."""

    master: Annotated[
        str,
        Field(
            pattern=r"^(local(\[[0-9*,]+\])?|spark://.+|k8s://.+|yarn|sc://.+)$",
            description="`sc://` is Spark Connect",
        ),
    ] = "local[*]"
    driver_memory: Annotated[str, Field(pattern=SPARK_MEMORY, description="heap of the driver")] = "2g"
    start: Annotated[
        JvmStart,
        Field(
            description="what a local Spark compiles: quick: little, for runs of seconds; full: all it can, which pays after"
            " a minute; auto: quick where a run's landing files are small"
        ),
    ] = JvmStart.AUTO
    config: Annotated[dict[str, str], Field(description="further Spark settings")] = {}

    @field_validator("config")
    @classmethod
    def _not_ours(cls, value: dict[str, str]) -> dict[str, str]:
        for key in value:
            if key in OWNED_SPARK_SETTINGS:
                raise ValueError(f"{key} is set by the platform and cannot be changed")
            if not key.startswith("spark."):
                raise ValueError(f"{key} does not start with `spark.`")
        return value


class RunSettings(Section):
    """How Dagster's runs are cut and repeated."""

    max_days_per_run: Annotated[
        int, Field(ge=1, le=366, description="days one backfill or sensor run may hold")
    ] = 31
    max_retries: Annotated[
        int, Field(ge=0, le=20, description="repetitions of a step after a transient error")
    ] = 3
    retry_delay_seconds: Annotated[
        float, Field(ge=0, le=3600, description="first delay; doubles, with full jitter")
    ] = 2.0
    sensor_interval_seconds: Annotated[
        int, Field(ge=1, le=3600, description="seconds between ticks of the sensors")
    ] = 5
    lock_wait_seconds: Annotated[
        float, Field(ge=0, le=3600, description="how long to wait for a table's other writer")
    ] = 60.0


class FollowSettings(Section):
    """The resident process that carries new events through (`etl-assets follow`)."""

    batch_interval_seconds: Annotated[
        float,
        Field(
            ge=0.05,
            le=3600,
            description="from the start of one micro-batch to that of the next, if it is done by then; also how often new"
            " files are looked for",
        ),
    ] = 1.0
    max_batch_bytes: Annotated[
        int,
        Field(
            ge=1_048_576,
            description="input of one micro-batch, compressed size: what is more goes through with the next ones",
        ),
    ] = 67_108_864
    most_small_files: Annotated[
        int,
        Field(
            ge=2,
            le=1_000,
            description="each micro-batch is a file; when a day of a table has more small ones, they are made one",
        ),
    ] = 50
    derived_interval_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="from the end of bringing order_status_view, dead_letters and audit_log up to date to the next time",
        ),
    ] = 20.0
    report_interval_seconds: Annotated[
        float,
        Field(
            ge=1,
            le=3600,
            description="between reports to Dagster: one row for each asset and day, and one for each check, however many"
            " micro-batches there were",
        ),
    ] = 60.0


class Settings(Section):
    """The whole platform file, with paths made absolute by `load_settings`."""

    home: Annotated[Path, Field(description="set by ETL_ASSETS_HOME, not in the file")]
    start_date: Annotated[dt.date, Field(description="first day of the daily partitions")] = dt.date(
        2026, 1, 1
    )
    owners: Annotated[
        tuple[str, ...], Field(description="owners of the assets: e-mail addresses or `team:name`")
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
    reference: ReferenceSettings = ReferenceSettings()
    spark: SparkSettings = SparkSettings()
    runs: RunSettings = RunSettings()
    follow: FollowSettings = FollowSettings()

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
                    f"domains: the root {site.root} holds {found[0]!r}, which Spark takes for a pattern or an escape; choose"
                    " another folder, or another ETL_ASSETS_HOME"
                )
        if not any(site.role is Role.VOTER for site in sites):
            raise ValueError(
                "domains: none is a voter, so nothing can be written; give one at least the role voter"
            )
        leaders = [site.name for site in sites if site.may_lead]
        if not leaders:
            raise ValueError(
                "domains: no voter has a folder for its root, and none may lead on an object store, where Spark does not"
                " write; give one voter at least a folder"
            )
        for stage in Stage:
            allowed = getattr(self.placement_policy, stage.value)
            if unknown := [name for name in allowed if not any(covers(name, each) for each in names)]:
                raise ValueError(
                    f"placement.{stage}: {unknown[0]} is no domain; there are {', '.join(names)}"
                )
            if not any(covers(name, leader) for name in allowed for leader in leaders):
                raise ValueError(
                    f"placement_policy.{stage} allows no voter that may lead; name one of {', '.join(leaders)} (object"
                    " stores only vote)"
                )
        return self

    @property
    def landing_path(self) -> Path:
        """The landing folder, absolute."""
        return self.home / self.landing.path

    @property
    def customers_file(self) -> Path:
        """The customer reference file, absolute; it may be absent."""
        return self.home / (self.reference.customers or self.landing.path / "_reference" / "customers.csv")

    @property
    def turns_path(self) -> Path:
        """Folder of the locks by which this machine's processes take turns at tables."""
        return self.home / "turns"

    @property
    def dagster_home(self) -> Path:
        """Folder of the Dagster instance."""
        return self.home / "dagster"

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is allowed and yet not what one wants, in sentences."""
        roles = [each.role for each in self.domains]
        voters = roles.count(Role.VOTER)
        if Role.WITNESS in roles or voters % 2:
            return ()
        lost = "either of them is down" if voters == 2 else f"{voters // 2} of them are down"
        return (
            f"domains: {voters} voters and no witness cannot go on while {lost}; one more voter, or a witness, would let"
            " them",
        )

    def placement(self) -> Placement:
        """The configured failure domains and who may run what in them."""
        sites = tuple(each.site(self.home) for each in self.domains)
        observations = Observations(self.home / "health.json")
        return Placement(
            domains=tuple(
                FailureDomain(
                    name=site.name,
                    root=Path(site.root),
                    sites=sites if len(sites) > 1 else (),
                    observations=observations,
                    timeout_seconds=self.health.timeout_seconds,
                )
                for site in sites
                if site.is_folder
            ),
            sites=sites,
            watch=Watch(
                memory=DomainsMemory(self.home / "domains.json"),
                observations=observations,
                timeout_seconds=self.health.timeout_seconds,
            ),
            policy=PlacementPolicy(
                allowed={stage: getattr(self.placement_policy, stage.value) for stage in Stage}
            ),
        )


def home_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The absolute home folder of this installation."""
    return Path(environment.HOME.read(environ) or ".etl-assets").expanduser().absolute()


def platform_file(environ: Mapping[str, str] | None = None) -> Path:
    """Where the platform file is, or would be."""
    named = environment.PLATFORM_FILE.read(environ)
    return Path(named).expanduser().absolute() if named else home_folder(environ) / "platform.yaml"


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read and validate the platform file; an absent default file means defaults.

    Raises:
        SettingsError: the file is missing although named, is not YAML, or a field is wrong; the message names the
            field, the value and what is allowed.
    """
    home = home_folder(environ)
    file = platform_file(environ)
    content = _read(file, must_exist=environment.PLATFORM_FILE.read(environ) is not None)
    if "home" in content:
        raise SettingsError(
            f"{file}: `home` is not a field of the platform file",
            fix=f"remove it and set {environment.HOME.name} instead",
            field="home",
        )
    master = environment.SPARK_MASTER.read(environ)
    if master is not None:
        spark = content.get("spark", {})
        # A section that is no mapping is left for the validation to name.
        content = {**content, "spark": {**spark, "master": master} if isinstance(spark, dict) else spark}
    try:
        return Settings.model_validate({**content, "home": home})
    except ValidationError as error:
        raise _explain(file, error) from error


def _read(file: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(
                f"the platform file {file} does not exist",
                fix=f"create it, or unset {environment.PLATFORM_FILE.name}",
                field=environment.PLATFORM_FILE.name,
            ) from None
        return {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingsError(
            f"the platform file {file} cannot be read: {error}", fix="mend the file"
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(
            f"{file} holds no mapping of fields", fix="write `field: value` lines, see docs/settings.md"
        )
    return content


def _explain(file: Path, error: ValidationError) -> SettingsError:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    allowed = _allowed(first)
    given = _CREDENTIALS.sub("…", repr(first["input"]))
    return SettingsError(
        f"{file}: {field} = {given} is wrong: {first['msg']}",
        fix=f"allowed: {allowed}" if allowed else "see docs/settings.md for the fields and their values",
        field=field,
        value=given,
        allowed=allowed,
    )


def _allowed(first: Any) -> str:
    """What may stand there, in words: the pattern or bound that was broken, or the known field names."""
    if first["type"] == "extra_forbidden":
        names = [name for name in _section(first["loc"]).model_fields if name != "home"]
        close = difflib.get_close_matches(str(first["loc"][-1]), names, n=1)
        return (f"did you mean `{close[0]}`? " if close else "") + "fields: " + ", ".join(names)
    return ", ".join(f"{key} {value}" for key, value in first.get("ctx", {}).items() if key != "error")


def _section(location: tuple[str | int, ...]) -> type[BaseModel]:
    """The part of the file a field stands in: the sections are one level deep."""
    sections: dict[str | int, type[BaseModel]] = {
        "domains": DomainSettings,
        "placement_policy": PlacementSettings,
        "health": HealthSettings,
        "upkeep": UpkeepSettings,
        "landing": LandingSettings,
        "reference": ReferenceSettings,
        "spark": SparkSettings,
        "runs": RunSettings,
        "follow": FollowSettings,
    }
    return sections.get(location[0], Settings) if len(location) > 1 else Settings
