"""What pipelines may do with a connection, without its address: what the check of a declaration needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRights:
    """A connection by name.

    Attributes:
        name: Its name in the platform file.
        type: Its type.
        write: What pipelines may write, as the platform file has it.
        allows: Returns whether a target may be written.
    """

    name: str
    type: str
    write: tuple[str, ...]
    allows: Callable[[str], bool] = field(compare=False, repr=False)
