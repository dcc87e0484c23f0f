"""Settings of the input: the landing folder."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from etl_assets.settings.section import Section, expect_storage


class LandingSettings(Section):
    """The landing folder and what is accepted from it."""

    path: Annotated[Path, Field(description="landing folder; relative to the home folder")] = Path("landing")
    settle_seconds: Annotated[
        float, Field(ge=0, le=3600, description="a file is read once it has not changed for this long")
    ] = 2.0
    max_record_bytes: Annotated[
        int, Field(ge=1_024, le=16_777_216, description="longer lines are dead letters")
    ] = 1_048_576
    max_batch_bytes: Annotated[
        int, Field(ge=1_048_576, description="input of one batch, compressed size")
    ] = 1_073_741_824
    earliest_event_time: Annotated[dt.date, Field(description="earlier event times are dead letters")] = (
        dt.date(2000, 1, 1)
    )
    max_clock_skew_hours: Annotated[
        int, Field(ge=0, le=8_760, description="how far after its arrival day an event's time may be")
    ] = 24

    @field_validator("path")
    @classmethod
    def _on_a_disk(cls, value: Path) -> Path:
        expect_storage(str(value))
        return value
