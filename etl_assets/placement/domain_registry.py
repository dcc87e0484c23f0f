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
from etl_assets.errors import SettingsError, Unanswered
from etl_assets.mirroring.conditional_write_check import broken_promise
from etl_assets.mirroring.opening import open_store
from etl_assets.placement.site import is_folder

MARKER = "domain.json"
EXPECTED = ""
"""Instead of a root's id: it was used by another home folder, and its marker has not been seen from this one."""
_GONE = "the root was emptied, or its disk is not mounted"
_EMPTIED = "the bucket was emptied, or is another one"


class AdminState(StrEnum):
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
    """One domain: the id of its root (None before its first use, `EXPECTED` before its first sight), and its standing."""

    root_id: str | None = None
    standing: AdminState = AdminState.IN_USE


@dataclass(frozen=True, slots=True)
class DomainRegistry:
    """The file in the home folder. Written by whoever first uses a domain, and by `etl-assets domains`."""

    file: Path

    def of(self, domain: str) -> Remembered:
        """What is remembered of a domain."""
        return self._read().get(domain, Remembered())

    @property
    def is_empty(self) -> bool:
        """Whether no root was used from this home folder."""
        return all(each.root_id is None for each in self._read().values())

    def marked(self, domain: str, root: str) -> str | None:
        """The id that a root carries for a domain, None if it carries none.

        Raises:
            Unanswered: the root cannot be read.
        """
        found = _read_marker(root)
        return found["id"] if found is not None and found["domain"] == domain else None

    def take_over(self, marked: Mapping[str, str | None]) -> None:
        """Remember the roots of a platform that another home folder used, if this one remembers none.

        A root that carries no mark is a disk that is not mounted, or was lost: it is not made anew, and is taken for what it
        was once it is back.

        Args:
            marked: The id that each domain's root carries.
        """
        with self._alone():
            if self.is_empty:
                for domain, found in marked.items():
                    self._write(domain, replace(self.of(domain), root_id=found or EXPECTED))

    def set_standing(self, domain: str, standing: AdminState) -> None:
        """Remember what the operator says."""
        with self._alone():
            self._write(domain, replace(self.of(domain), standing=standing))

    def strange(self, domain: str, root: str) -> str | None:
        """Why a root is not the one that was used before, None if it is, or none was used before. Changes nothing.

        A bucket that was never used is asked whether it keeps to the conditions of writes; a folder's are the platform's own.

        Raises:
            Unanswered: the root cannot be read.
        """
        known, found = self.of(domain).root_id, _read_marker(root)
        if found is None and known is None:
            return None if is_folder(root) else broken_promise(open_store(root))
        if found is None:
            return _GONE if is_folder(root) else _EMPTIED
        if not known:
            return None if found["domain"] == domain else f"the root belongs to the domain {found['domain']}"
        return None if found["id"] == known else "the root was replaced by another one"

    def take(self, domain: str, root: str) -> None:
        """Make and mark a root that was never used, and remember it; one that was stays as it is.

        Of several that take it at once one marks it. The root is not touched under the lock of the file: it may hang.

        Raises:
            OSError: it cannot be made.
            Unanswered: it cannot be marked.
        """
        if known := self.of(domain).root_id:
            return
        if known is None:
            if is_folder(root):
                Path(root).mkdir(parents=True, exist_ok=True)
            marker = json.dumps({"domain": domain, "id": uuid.uuid4().hex}).encode()
            open_store(root).create(MARKER, marker)
        found = _read_marker(root)
        if found is None:
            raise Unanswered(
                f"{root}: it could not be marked", fix="see that the bucket is there", store=root, key=MARKER
            )
        with self._alone():
            if not self.of(domain).root_id:
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
                name: Remembered(root_id=each["root_id"], standing=AdminState(each["standing"]))
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


def _read_marker(root: str) -> dict[str, str] | None:
    try:
        if is_folder(root) and not Path(root).is_dir():
            return None
    except OSError as error:
        raise Unanswered(
            f"its root {root} cannot be read ({error.strerror})",
            fix="let this user read and write there, and see that the mount is whole",
            store=root,
            key=MARKER,
        ) from error
    found = open_store(root).get(MARKER)
    return None if found is None else _marker(found.content)


def owner(marker: bytes) -> str:
    """The domain that a root's marker names; `?` if it cannot be read."""
    return _marker(marker)["domain"]


def _marker(content: bytes) -> dict[str, str]:
    try:
        marker = json.loads(content)
        return {"domain": str(marker["domain"]), "id": str(marker["id"])}
    except (ValueError, KeyError, TypeError):
        return {"domain": "?", "id": "?"}
