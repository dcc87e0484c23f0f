"""Where a declaration comes from, and whose it is."""

from __future__ import annotations

from enum import StrEnum

DEFAULT_TENANT = "default"
"""The tenant of the pipelines of files, and of the built-in ones."""


class DeclarationOrigin(StrEnum):
    """Where a declaration comes from."""

    BUILT_IN = "built_in"
    FILE = "file"
    REST = "rest"
    CAPTURE = "capture"
