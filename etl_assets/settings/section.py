"""Base of all sections of the platform file."""

from __future__ import annotations

from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict

_NO_STORAGE = ("/proc", "/sys", "/dev")
_STORAGE = "/dev/shm"


def expect_storage(path: str) -> None:
    """Reject a folder of the kernel, by its name alone: the path is not accessed, as a disk may hang.

    Raises:
        ValueError: the path is in such a folder.
    """
    there = PurePosixPath(path)
    for kept in _NO_STORAGE:
        if there.is_relative_to(kept) and not there.is_relative_to(_STORAGE):
            raise ValueError(f"{kept} belongs to the kernel and keeps no files; name a folder on a disk")


class Section(BaseModel):
    """A section of the platform file: immutable, and an unknown field is an error."""

    # `refusal` shows the value found, if it cannot be a secret.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
