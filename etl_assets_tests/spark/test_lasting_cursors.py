"""What a table has consumed of its inputs is known as long as the table, however many days a commit was
for.
"""

from __future__ import annotations

import pytest

from etl_assets.delta.log.cursor import cursor_name
from etl_assets.delta.log.entries import read_entry
from etl_assets.delta.log.lasting_cursors import LASTING, REMEMBERED_COMMITS
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.steps.changes import read_changes
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, NEXT_DAY, event
from etl_assets_tests.reference.tables import CATALOG

pytestmark = pytest.mark.spark
DAYS = [DAY, NEXT_DAY]


def _commit_much(table) -> None:
    """So many commits of others that none of the table's own is looked at any more."""
    for base in range(table.version(), table.version() + REMEMBERED_COMMITS):
        NewEntry(operation="OTHER", base_version=base, metrics={}, user_metadata={}).put(
            table.path, stamped=False
        )


@pytest.mark.parametrize("mode", list(ReadMode))
def test_nothing_is_read_again_after_a_hundred_commits(pipeline, mode):
    for number, day in enumerate(DAYS):
        pipeline.land(
            [event(number), "no JSON", event(number + 10, event_type="Unknown")], day=day, name="a.jsonl"
        )
    reports = pipeline.run(DAYS, mode=mode)
    assert reports["dead_letters"].version == pipeline.context.table("dead_letters").version()
    consumed = {name: pipeline.context.table(name).version() for name in CATALOG.made_again}
    for name in CATALOG.made_again:
        table = pipeline.context.table(name)
        assert read_entry(table.path, table.version()).user_metadata[LASTING], name
        _commit_much(table)
    for name in CATALOG.made_again:
        sources = CATALOG.inputs_of(name)
        table = pipeline.context.table(name)
        if name == "order_status_view":
            (source,) = sources
            known = table.snapshot().transaction_version(cursor_name(source, None))
            assert known == consumed[source]
            continue
        for source in sources:
            changes = read_changes(pipeline.context.table(source), table, DAYS, ReadMode.INCREMENTAL)
            assert changes.days == (), (name, source)
    # dead_letters is written by Delta's MERGE, which takes one transaction id.
    again = pipeline.run(DAYS)
    assert [report.commits for report in again.values()] == [0] * len(again)
