"""Where a domain keeps its replicas: a folder of this machine, or a prefix of a bucket."""

from __future__ import annotations

from dataclasses import dataclass

from etl_assets.mirroring.locator import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A domain's root and what its replicas are for."""

    name: str
    root: str
    role: Role

    @property
    def is_folder(self) -> bool:
        """Whether Spark reads and writes there. An object store only votes and holds copies."""
        return is_folder(self.root)

    @property
    def may_lead(self) -> bool:
        """Whether tables may be written there first."""
        return self.is_folder and self.role is Role.VOTER


def is_folder(root: str) -> bool:
    """Whether a root is a folder of this machine."""
    return "://" not in root
