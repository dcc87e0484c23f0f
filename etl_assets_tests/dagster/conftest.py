"""Fixtures of the tests of `DeltaUpsertIOManager`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from etl_assets_tests.dagster.io_manager_lab import Lab


@pytest.fixture
def lab(spark: Any, engine: Any) -> Iterator[Lab]:
    """Assets of users on an instance of their own."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield Lab(instance, spark, engine)
