"""What all parts of the platform file have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the platform file: immutable, and an unknown field is an error."""

    # What was given is shown by `refusal`, if it can be no secret.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
