"""Fixtures that tests share: one Spark session for all of them, and a platform in a temporary folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from etl_assets_tests.pipeline import Pipeline

# Here and not in the modules that use them: each module that imports a fixture has a server of its own.
from etl_assets_tests.servers import (  # noqa: F401 - fixtures
    end_servers,
    kafka_server,
    opensearch_server,
    postgres_server,
    s3_server,
)

TOLD = "told"
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings with which Spark evaluates expressions without generating and compiling code for each query.

That is a third less CPU for queries of few rows that run once. `make test` asks for it by
`SPARK_CODEGEN=off`; the processes that tests start compile as users' do, and so does everything in
`make test-full`.
"""

# Machines that run tests are shared: how long an example takes says nothing.
hypothesis.settings.register_profile("shared machine", deadline=None)
hypothesis.settings.load_profile("shared machine")


def pytest_sessionfinish() -> None:
    end_servers()


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """One Spark engine for the whole session; starting one costs more than most tests."""
    from etl_assets.resources.spark import SparkResource, spark_config
    from etl_assets.settings import SparkSettings

    scratch = tmp_path_factory.mktemp("spark")
    settings = SparkSettings(
        master="local[2]",
        config={
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            # Tests run many small queries once: compiling them less is faster than compiling them well.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            **(INTERPRETED if os.environ.get("SPARK_CODEGEN") == "off" else {}),
        },
    )
    resource = SparkResource(spark_config=spark_config(settings))
    yield resource
    resource.spark_session.stop()


@pytest.fixture
def spark(engine):
    """A session of the shared engine, whose settings no other test sees."""
    return engine.spark_session.newSession()


@pytest.fixture
def pipeline(spark, tmp_path: Path) -> Pipeline:
    """A platform with one failure domain and an empty landing folder."""
    return Pipeline(root=tmp_path / "data", landing=tmp_path / "landing", session=lambda: spark)


@pytest.fixture(autouse=True)
def _no_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests never touch the installation of whoever runs them."""
    for name in [name for name in os.environ if name.startswith("ETL_ASSETS_") and name != "ETL_ASSETS_JARS"]:
        if name not in ("ETL_ASSETS_OLIST",):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path / "home"))


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Says something at the end of the test run, such as the figures of chaos."""

    def kept(line: str) -> None:
        # A property of the test travels with its report, whichever process ran it.
        request.node.user_properties.append((TOLD, line))

    return kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Here and not beside the tests that tell: the process that sums up reads no other conftest."""
    for report in terminalreporter.getreports("passed"):
        for name, line in report.user_properties:
            if name == TOLD and report.when == "call":
                terminalreporter.write_line(line)
