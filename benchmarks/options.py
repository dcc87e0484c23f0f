"""What a whole run of the benchmarks is told, and the Spark settings that both sides of a case get."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from etl_assets.environment import Variable

BENCH = Variable(
    name="ETL_ASSETS_BENCH",
    meaning="Benchmarks only: folder of generated input and of the tables written.",
    default="`etl-assets-bench` in the folder for temporary files",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command.

    Attributes:
        runs: How often each side runs; medians are reported.
        events: Good events of the bulk case; duplicates and rejects come on top.
        days: Days of the history case.
        files: Landing files of the history case.
        seconds: How long the steady case is measured.
        master: Where Spark runs.
        spark: Spark settings on top of the platform's own, for both sides.
    """

    runs: int = 5
    events: int = 1_000_000
    days: int = 1_000
    files: int = 10_000
    seconds: int = 600
    master: str = "local[2]"
    spark: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where input is kept and tables are written; outside of the repository."""
        return Path(BENCH.read() or Path(tempfile.gettempdir()) / "etl-assets-bench").absolute()

    def spark_settings(self, scratch: Path) -> dict[str, str]:
        """All settings of a session: the platform's, with a heap of 2 GiB."""
        from etl_assets.resources.spark import spark_config
        from etl_assets.settings import SparkSettings

        config = {
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            **self.spark,
        }
        return spark_config(SparkSettings(master=self.master, driver_memory="2g", config=config))


def jvm_settings_by_hand(settings: Mapping[str, str]) -> dict[str, str]:
    """What the platform starts a JVM for much work with, for a script that starts its own: its archive of
    classes and what its collector is told.
    """
    from etl_assets.resources.jvm import driver_options, option_string
    from etl_assets.runtime.java import find_java

    options = driver_options(find_java(), settings, os.environ, quick=False)
    return {"spark.driver.defaultJavaOptions": option_string(options)}


def script_environment() -> dict[str, str]:
    """The environment of both sides: the same Java and the same Python for Spark's workers."""
    import sys

    from etl_assets.runtime.java import find_java

    return {**os.environ, "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
