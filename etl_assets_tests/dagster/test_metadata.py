"""What the UI shows of a table and of a commit reads well: short, named for what it is, and charts only of
what is a figure.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import dagster as dg
import pytest

from etl_assets.build import build_definitions
from etl_assets.metadata import definition_metadata, partitions_metadata, run_metadata
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.settings import load_settings
from etl_assets.settings.domains import DomainSettings
from etl_assets.steps.step import StepReport, platform_table
from etl_assets_tests.reference.tables import ALL_TABLES, CATALOG

DAY = dt.date(2026, 1, 5)


def report(*batches: dict[str, int]) -> StepReport:
    """Of several batches, as a step sums them up."""
    each = [
        StepReport(table=RAW_EVENTS.name, version=7, counts={DAY: Counter(figures)}, commits=1)
        for figures in batches
    ]
    return sum(each, StepReport(table=RAW_EVENTS.name, version=7))


def shown(figures: StepReport) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the run, and of its day."""
    table = platform_table(RAW_EVENTS.name, load_settings().placement().reader())
    of_day = partitions_metadata(table, figures, [DAY.isoformat()])
    return run_metadata(table, figures), of_day[DAY.isoformat()]


def test_rows_that_were_there_before_are_not_shown_as_new():
    """A day that is read again: every line is accepted once more, and none is stored."""
    of_run, of_day = shown(report({"read": 2, "accepted": 2, "inserted": 0}, {"read": 1, "accepted": 1}))
    for metadata in (of_run, of_day):
        assert (metadata["read"], metadata["accepted"], metadata["inserted"]) == (3, 3, 0)


def test_the_figures_of_a_run_of_a_declared_pipeline_add_up():
    of_run, _ = shown(report({"read": 5, "rejected": 1, "filtered": 1, "inserted": 2, "ignored": 1}))
    assert of_run["read"] == sum(of_run[name] for name in ("rejected", "filtered", "inserted", "ignored"))


def test_a_day_with_nothing_to_read_has_no_figures():
    assert shown(report({}))[1] == {"dagster/partition_row_count": 0}


def test_what_is_no_figure_is_text_so_that_no_chart_is_made_of_it():
    of_run, _ = shown(report({"read": 2, "inserted": 2}))
    assert (of_run["table_version"], of_run["commits"]) == ("7", "1")


@pytest.mark.parametrize("contract", ALL_TABLES, ids=lambda contract: contract.name)
def test_what_a_column_must_be_is_said_in_few_words_without_its_name(contract):
    for column in definition_metadata(contract, CATALOG)["dagster/column_schema"].columns:
        for text in column.constraints.other:
            assert not text.startswith((column.name, "must"))
            assert len(text) <= 32 or text.startswith("one of "), text


def test_a_limit_of_characters_is_named():
    columns = {
        column.name: column
        for column in definition_metadata(RAW_EVENTS, CATALOG)["dagster/column_schema"].columns
    }
    assert columns["event_id"].constraints.other == ["not empty", "at most 512 chars"]


def test_where_a_table_lies_is_shown_with_the_asset_unless_that_changes():
    settings = load_settings()
    mirrored = settings.model_copy(
        update={"domains": tuple(DomainSettings(name=name, root=name) for name in ("a", "b", "c"))}
    )
    key = dg.AssetKey("raw_events")
    of_one = build_definitions(settings).resolve_asset_graph().get(key).metadata
    assert of_one["dagster/uri"] == str(platform_table("raw_events", settings.placement().reader()).path)
    assert "dagster/uri" not in build_definitions(mirrored).resolve_asset_graph().get(key).metadata
