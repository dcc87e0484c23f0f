"""The sink in memory keeps the contract of sinks."""

from __future__ import annotations

import pytest

from etl_assets.testing.memory_sink import MemorySink, MemoryTarget
from etl_assets_tests.sinks.contract import Opened, SinkContract, Stored


class TestMemorySink(SinkContract):
    @pytest.fixture
    def held(self) -> MemoryTarget:
        return MemoryTarget()

    @pytest.fixture
    def opened(self, held: MemoryTarget) -> Opened:
        return lambda: MemorySink(held=held)

    @pytest.fixture
    def stored(self, held: MemoryTarget) -> Stored:
        return lambda: {(row["id"], row["name"]) for row in held.rows.values()}
