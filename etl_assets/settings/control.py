"""Settings of run control: where it is kept, and for how long a lease lasts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from etl_assets.settings.section import Section


class ControlSettings(Section):
    """Run control of pipelines: runs on request, pauses, cancellations."""

    connection: Annotated[
        str | None,
        Field(
            min_length=1,
            examples=["control"],
            description="a connection of type postgres whose database keeps run control; by default"
            " `control.db`, SQLite in the home folder",
        ),
    ] = None
    lease_seconds: Annotated[
        float,
        Field(
            ge=1,
            le=3_600,
            description="a run whose runner sent no heartbeat for so long is taken over",
        ),
    ] = 15.0
