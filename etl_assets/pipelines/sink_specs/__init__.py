"""The sinks that a pipeline can declare, one file for each type.

To add a type: a class in a file of its own here, its name in `SinkSpec`, and its opener in
`sinks/open_sink.py`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from etl_assets.pipelines.sink_specs.duckdb import DuckdbSinkSpec
from etl_assets.pipelines.sink_specs.files import FolderSinkSpec, ObjectStoreSinkSpec
from etl_assets.pipelines.sink_specs.kafka import KafkaSinkSpec
from etl_assets.pipelines.sink_specs.postgres import PostgresSinkSpec
from etl_assets.pipelines.sink_specs.search import SearchSinkSpec
from etl_assets.pipelines.sink_specs.webhook import WebhookSinkSpec

SinkSpec = Annotated[
    PostgresSinkSpec
    | DuckdbSinkSpec
    | FolderSinkSpec
    | ObjectStoreSinkSpec
    | KafkaSinkSpec
    | SearchSinkSpec
    | WebhookSinkSpec,
    Field(discriminator="type"),
]
