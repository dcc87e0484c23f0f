"""The block of a declaration that says what is read: `source`, or `source.from` of Debezium's events.

Belongs here: finding it. Does not belong here: what the block says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etl_assets.pipelines.debezium_spec import DebeziumSource

if TYPE_CHECKING:
    from etl_assets.pipelines.spec import PipelineSpec


def reader_block(spec: PipelineSpec) -> tuple[tuple[str, ...], Any]:
    """Return the place and the value of the block with the connection, the topic or the path."""
    source = spec.source
    return (("source", "from"), source.from_) if isinstance(source, DebeziumSource) else (("source",), source)
