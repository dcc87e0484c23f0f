"""Routes of the control plane, a module for each resource.

Belongs here: what a request asks for, and the form of its answer. Does not belong here: what all routes share
(`etl_assets/serve/`).
"""

from __future__ import annotations

from etl_assets.control.routes import (
    captures,
    connections,
    dead_letters,
    definitions,
    metrics,
    pipelines,
    revisions,
    runs,
    tables,
    traces,
    validation,
)

ROUTERS = (
    validation.router,
    pipelines.router,
    definitions.router,
    revisions.router,
    runs.router,
    tables.router,
    dead_letters.router,
    traces.router,
    connections.router,
    captures.router,
    metrics.router,
)
"""All of them. Fixed paths come before those with a parameter in the same place."""
