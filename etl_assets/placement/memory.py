"""What the home folder remembers of the failure domains: which roots are theirs, and which an operator took out.

A root that was used before carries a marker with an id, and the home folder has the same id. A root without it is a disk
that is not mounted, or was emptied or swapped: nothing is created on it. The file is `<home>/domains.json`.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from etl_assets.delta.durability import write_durably
from etl_assets.errors import SettingsError

MARKER = "domain.json"


class Standing(StrEnum):
    """What an operator says of a domain.

    IN_USE: nothing; its health alone counts. The default.
    DRAINED: no stage is placed there; its replicas are kept up. Set before maintenance.
    FAILED: no stage is placed there, whatever its probe says.
    """

    IN_USE = "in use"
    DRAINED = "drained"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """One domain: the id of its root (None before its first use), and its standing."""

    root_id: str | None = None
    standing: Standing = Standing.IN_USE


@dataclass(frozen=True, slots=True)
class DomainsMemory:
    """The file in the home folder. Written by whoever first uses a domain, and by `etl-assets domains`."""

    file: Path

    def of(self, domain: str) -> Remembered:
        """What is remembered of a domain."""
        return self._read().get(domain, Remembered())

    def set_standing(self, domain: str, standing: Standing) -> None:
        """Remember what the operator says."""
        with self._alone():
            self._write(domain, replace(self.of(domain), standing=standing))

    def strange(self, domain: str, root: Path) -> str | None:
        """Why a root is not the one that was used before, None if it is, or none was used before. Changes nothing.

        Raises:
            OSError: the root cannot be read.
        """
        known, found = self.of(domain).root_id, _read_marker(root)
        if found is None:
            return None if known is None else "the root was emptied, or its disk is not mounted"
        if known is None:
            return None if found["domain"] == domain else f"the root belongs to the domain {found['domain']}"
        return None if found["id"] == known else "the root was replaced by another one"

    def take(self, domain: str, root: Path) -> None:
        """Make and mark a root that was never used, and remember it; one that was stays as it is.

        Raises:
            OSError: it cannot be made or marked.
        """
        if self.of(domain).root_id is not None:
            return
        with self._alone():
            if self.of(domain).root_id is not None:
                return
            root.mkdir(parents=True, exist_ok=True)
            found = _read_marker(root)
            if found is None:
                found = {"domain": domain, "id": uuid.uuid4().hex}
                write_durably(root / MARKER, json.dumps(found).encode())
            self._write(domain, replace(self.of(domain), root_id=found["id"]))

    def forget(self, domain: str) -> None:
        """Take the root as it is now for the domain's: what was there before is given up."""
        with self._alone():
            self._write(domain, replace(self.of(domain), root_id=None))

    @contextmanager
    def _alone(self) -> Generator[None]:
        """One writer at a time, threads and processes: sensors, runs and operators change the same file."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> Mapping[str, Remembered]:
        try:
            content = json.loads(self.file.read_text("utf-8"))
            return {
                name: Remembered(root_id=each["root_id"], standing=Standing(each["standing"]))
                for name, each in content.items()
            }
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(
                f"{self.file} is not what `etl-assets` wrote there: {error}",
                fix="mend it, or restore it from a backup; without it the roots of all domains are taken as they are",
                field=str(self.file),
            ) from error

    def _write(self, domain: str, remembered: Remembered) -> None:
        everything = {**self._read(), domain: remembered}
        content = {
            name: {"root_id": each.root_id, "standing": each.standing.value}
            for name, each in everything.items()
        }
        write_durably(self.file, (json.dumps(content, indent=2) + "\n").encode())


def _read_marker(root: Path) -> dict[str, str] | None:
    try:
        found = json.loads((root / MARKER).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return {"domain": "?", "id": "?"}
    return found
