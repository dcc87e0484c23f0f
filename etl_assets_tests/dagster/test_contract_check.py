"""The check of a table's full contract: it costs Spark, so a version that has passed is not looked at again."""

from __future__ import annotations

import dagster as dg
import pytest

from etl_assets.checks.contracts import VERSION, _passed_before

KEY = dg.AssetCheckKey(dg.AssetKey("raw_events"), "contract")


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def evaluated(instance: dg.DagsterInstance, *, passed: bool, version: int) -> None:
    @dg.asset_check(asset="raw_events", name="contract")
    def check() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=passed, metadata={VERSION: version})

    @dg.asset
    def raw_events() -> None:
        return None

    dg.materialize([raw_events, check], instance=instance)


def test_a_version_that_passed_is_known(instance):
    assert not _passed_before(instance, KEY, 3)
    evaluated(instance, passed=True, version=3)
    assert _passed_before(instance, KEY, 3)
    assert not _passed_before(instance, KEY, 4)


def test_a_version_that_failed_last_is_looked_at_again(instance):
    evaluated(instance, passed=True, version=3)
    evaluated(instance, passed=False, version=3)
    assert not _passed_before(instance, KEY, 3)
