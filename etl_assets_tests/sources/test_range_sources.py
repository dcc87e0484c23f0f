"""Each source that is read in ranges keeps the contract of the interface."""

from __future__ import annotations

import json

import pytest

from etl_assets.sources.formats import JsonLines
from etl_assets.sources.kafka.source import KafkaTopic
from etl_assets.sources.kafka.staged import StagedRecords
from etl_assets.sources.positions import positions_in, transactions_of
from etl_assets.testing.memory_source import MemorySource
from etl_assets_tests.sources.contract import RangeSourceContract, RangesUnderTest
from etl_assets_tests.sources.topics import Topic


class TestMemorySource(RangeSourceContract):
    @pytest.fixture
    def ranges(self):
        source = MemorySource(partitions={"p": []})
        return RangesUnderTest(
            source=source,
            format=JsonLines(),
            add=lambda time, lines: source.add("p", time, lines),
            lose=lambda number: source.partitions["p"].__setitem__(slice(0, number), [None] * number),
        )


class TestKafkaTopic(RangeSourceContract):
    @pytest.fixture
    def ranges(self, kafka_server, tmp_path):
        topic = Topic.create(kafka_server.url, tmp_path / "installation")
        source = KafkaTopic(
            options={"bootstrap.servers": kafka_server.url},
            topic=topic.name,
            start="earliest",
            on_lost="fail",
            table="t",
        )
        yield RangesUnderTest(
            source=source,
            format=StagedRecords(),
            add=lambda time, lines: topic.send(lines, timestamp=int(time.timestamp() * 1_000)),
            lose=lambda number: topic.delete_before(0, number),
        )
        source.close()


@pytest.mark.parametrize(
    "position",
    [0, 5, 2**63 - 1, -1, 2**70, 1.5, True, "", "2026-01-01T00:00:00Z", "ä€" * 40, ["x", 1], {"k": [None]}],
)
def test_a_position_is_the_same_when_it_was_a_transaction_id(position):
    kept = transactions_of({"long": json.dumps(position) * 3, "p": "a long text before"})
    kept |= transactions_of({"p": position})
    assert all(-(2**63) <= each < 2**63 for each in kept.values())
    assert positions_in(kept)["p"] == position
    assert "p" not in positions_in(kept | transactions_of({"p": None}))
