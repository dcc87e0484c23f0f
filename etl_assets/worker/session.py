"""The Spark session of one thread of the worker."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.resources.spark import SparkResource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Session:
    """A Spark session of one thread, created on first use and created again when it is lost."""

    config: Mapping[str, str]
    resource: SparkResource | None = None
    made: SparkSession | None = None

    def __call__(self) -> SparkSession:
        if self.resource is None:
            self.resource = SparkResource(spark_config=dict(self.config))
        self.made = self.resource.spark_session
        return self.made

    def renew(self) -> None:
        self.resource = self.made = None

    def interrupt(self) -> None:
        """Cancel the session's running jobs."""
        if self.made is not None:
            with suppress(Exception):  # this process leaves whether or not the jobs could be cancelled
                self.made.interruptAll()
