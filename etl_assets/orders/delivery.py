"""The sink of the status of orders: PostgreSQL, if the platform file has a connection for it.

Belongs here: the declaration. Does not belong here: the routes that read the target (`status_routes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from etl_assets.errors import RuntimeMissing
from etl_assets.orders.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.pipelines.connection_rights import ConnectionRights
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.sink_specs.postgres import PostgresSinkSpec
from etl_assets.steps.delivery_stage import delivery_stage

if TYPE_CHECKING:
    from fastapi import APIRouter

    from etl_assets.settings import Settings

STATUS_SINK = PostgresSinkSpec(type="postgres", connection="orders", table=f"orders.{ORDER_STATUS_VIEW.name}")


def with_delivery(pipeline: Pipeline, connections: Sequence[ConnectionRights]) -> Pipeline:
    """Return the pipeline with its sink and routes, if a connection `orders` allows to write the target."""
    has_target = any(
        each.name == STATUS_SINK.connection
        and each.type == STATUS_SINK.connection_type
        and each.allows(STATUS_SINK.target_name)
        for each in connections
    )
    if not has_target:
        return pipeline
    stage = delivery_stage(STATUS_SINK, pipeline=pipeline.name, group="sink", table=ORDER_STATUS_VIEW)
    return replace(pipeline, derived=(*pipeline.derived, stage), router=_router)


def _router(settings: Settings) -> APIRouter:
    try:
        from etl_assets.orders.status_routes import status_router
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise RuntimeMissing(
            f"the connection {STATUS_SINK.connection!r} needs the package psycopg, which is not installed",
            fix="pip install 'etl-assets[postgres]'",
        ) from error

    return status_router(settings)
