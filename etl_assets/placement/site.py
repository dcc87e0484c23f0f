"""The site of a domain's replicas: a folder of this machine, or a prefix of a bucket."""

from __future__ import annotations

from dataclasses import dataclass

from etl_assets.mirroring.protocol.locator import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A domain's root, and the role of its replicas."""

    name: str
    root: str
    role: Role

    @property
    def is_folder(self) -> bool:
        """Whether Spark can read and write there. A domain on an object store only votes and holds copies."""
        return is_folder(self.root)

    @property
    def may_lead(self) -> bool:
        """Whether the domain may lead tables: its root is a folder, and its replicas are voters."""
        return self.is_folder and self.role is Role.VOTER


def is_folder(root: str) -> bool:
    """Return whether a root is a folder of this machine."""
    return "://" not in root
