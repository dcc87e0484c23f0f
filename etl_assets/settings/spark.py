"""How Spark is started or reached.

Secrets do not belong here: Dagster and process lists show the settings.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import Field, field_validator

from etl_assets.settings.section import Section

SPARK_MEMORY = r"^[1-9][0-9]*[mg]$"
OWNED_SPARK_SETTINGS = (
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
)
_SECRET = re.compile(
    r"secret|password|passphrase|token|(access|account|private|encryption)[._-]?key|\.sas\.", re.IGNORECASE
)
_NAMES_A_SECRET = re.compile(
    r"(file|mechanism|endpoint|provider(\.(path|type))?)$|\.secrets\.|secretKeyRef|tokenSecret\.(name|itemKey)$",
    re.IGNORECASE,
)


class JvmStart(StrEnum):
    """Purpose that Spark's JVM is tuned for."""

    AUTO = "auto"
    QUICK = "quick"
    FULL = "full"


class SparkSettings(Section):
    """How Spark is started or reached."""

    master: Annotated[
        str,
        Field(
            pattern=r"^(local(\[[0-9*,]+\])?|spark://.+|k8s://.+|yarn|sc://.+)$",
            examples=["local[*]", "local[4]", "spark://host:7077"],
            description="`sc://` is Spark Connect",
        ),
    ] = "local[*]"
    driver_memory: Annotated[
        str, Field(pattern=SPARK_MEMORY, examples=["2g", "512m"], description="heap of the driver")
    ] = "2g"
    start: Annotated[
        JvmStart,
        Field(
            description="what a local Spark compiles: quick: little, for runs of seconds; full: all it can,"
            " which pays after a minute; auto: quick where a run's landing files are small"
        ),
    ] = JvmStart.AUTO
    config: Annotated[
        dict[str, str],
        Field(
            description="further Spark settings; a secret only by the name of an environment variable:"
            " `${env.NAME}` for those that begin with `spark.hadoop.`, `${env:NAME}` for others"
        ),
    ] = {}  # noqa: RUF012 - pydantic gives each instance its own

    @property
    def driver_memory_bytes(self) -> int:
        """The heap of the driver in bytes."""
        return int(self.driver_memory[:-1]) << {"m": 20, "g": 30}[self.driver_memory[-1]]

    @field_validator("master")
    @classmethod
    def _without_token(cls, value: str) -> str:
        if "token=" in value:
            raise ValueError(
                "it holds a token: take it out, and set the environment variable"
                " SPARK_CONNECT_AUTHENTICATE_TOKEN"
            )
        return value

    @field_validator("config")
    @classmethod
    def _not_ours(cls, value: dict[str, str]) -> dict[str, str]:
        for key in value:
            if key in OWNED_SPARK_SETTINGS:
                raise ValueError(f"{key} is set by the platform and cannot be changed")
            if key == "spark.driver.memory":
                raise ValueError(
                    f"{key} is not set here, but as `spark.driver_memory`, by which other things go as well"
                )
            if not key.startswith("spark."):
                raise ValueError(f"{key} does not start with `spark.`")
            sign = "." if key.startswith("spark.hadoop.") else ":"
            if is_secret(key) and not re.fullmatch(rf"\$\{{env[{sign}]\w+\}}", value[key]):
                raise ValueError(
                    f"{key} is a secret: put it into an environment variable, and write `${{env{sign}NAME}}`"
                    " here"
                )
        return value


def is_secret(spark_setting: str) -> bool:
    """Return whether a setting of this name holds a secret, rather than the place of one."""
    return bool(_SECRET.search(spark_setting)) and not _NAMES_A_SECRET.search(spark_setting)
