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
        tenant: The tenant that defined it over REST, whose pipelines alone may use it; None for one of the
            platform file.
    """

    name: str
    type: str
    write: tuple[str, ...]
    allows: Callable[[str], bool] = field(compare=False, repr=False)
    tenant: str | None = None

    def is_known_to(self, tenant: str) -> bool:
        """Return whether pipelines of a tenant may use it."""
        return self.tenant in (None, tenant)
