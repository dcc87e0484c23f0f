"""What all parts of the platform file have in common."""

from __future__ import annotations

from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict

_NO_STORAGE = ("/proc", "/sys", "/dev")
_STORAGE = "/dev/shm"


def expect_storage(path: str) -> None:
    """Refuse a folder that the kernel keeps for itself, by its name: nothing is looked at, as a disk may hang.

    Raises:
        ValueError: it is in one.
    """
    there = PurePosixPath(path)
    for kept in _NO_STORAGE:
        if there.is_relative_to(kept) and not there.is_relative_to(_STORAGE):
            raise ValueError(f"{kept} belongs to the kernel and keeps no files; name a folder on a disk")


class Section(BaseModel):
    """A part of the platform file: immutable, and an unknown field is an error."""

    # What was given is shown by `refusal`, if it can be no secret.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
