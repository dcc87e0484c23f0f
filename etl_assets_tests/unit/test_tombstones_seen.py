"""A load that another run overtakes between its looks at the tombstones and at the table."""

from __future__ import annotations

from typing import NoReturn

import pytest

from etl_assets.errors import CommitConflict
from etl_assets.steps import load_table
from etl_assets.steps.changes import NewRows
from etl_assets.steps.step import ReadMode, StepArguments, StepContext, step_of
from etl_assets_tests.sinks.webhook_lab import WebhookLab


def no_spark() -> NoReturn:
    raise AssertionError("it is found before")


def test_tombstones_that_another_run_added_before_the_tables_version_was_read_are_a_conflict(
    tmp_path, monkeypatch
):
    lab = WebhookLab(tmp_path, "http://127.0.0.1:9")
    lab.write([(1, "Alien"), (2, "Brazil")])
    arguments = StepArguments(
        settings=lab.settings,
        context=StepContext(session=no_spark, domain=lab.settings.placement().domains[0]),
        mode=ReadMode.INCREMENTAL,
    )

    def overtaken(source, table, mode):
        lab.delete([2])
        snapshot = lab.table().snapshot()
        assert snapshot is not None
        return NewRows(snapshot=snapshot, after=3, transaction=None, cursors={})

    monkeypatch.setattr(load_table, "read_new_rows", overtaken)
    with pytest.raises(CommitConflict, match="films_tombstones"):
        step_of("films", arguments).run([])
    assert lab.stored() == {"1": "Alien"}
