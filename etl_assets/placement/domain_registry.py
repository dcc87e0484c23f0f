"""Registry of the failure domains, in the home folder: the root of each, and the state an operator set.

A root that was used before carries a marker with an id, and the registry has the same id. A root without the
marker is a disk that is not mounted, or was emptied or replaced: nothing is created on it. The file is
`<home>/domains.json`.
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

from etl_assets.delta.log.durability import write_durably
from etl_assets.errors import SettingsError, Unanswered
from etl_assets.mirroring.stores.conditional_write_check import broken_promise
from etl_assets.mirroring.stores.opening import open_store
from etl_assets.placement.site import is_folder

MARKER = "domain.json"
EXPECTED = ""
"""Stands for the id of a root that another home folder used, until its marker has been read from this one."""
_GONE = "the root was emptied, or its disk is not mounted"
_EMPTIED = "the bucket was emptied, or is another one"


class AdminState(StrEnum):
    """State of a domain as set by an operator.

    IN_USE: nothing was set, and only the domain's health counts. The default.
    DRAINED: no stage is placed there, but its replicas are kept up to date. Set before maintenance.
    FAILED: no stage is placed there, whatever its probe says.
    """

    IN_USE = "in use"
    DRAINED = "drained"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """Registry entry of one domain.

    Attributes:
        root_id: Id of the domain's root. None before its first use, `EXPECTED` before its marker was first
            read.
        is_being_marked: Whether this home folder has begun to mark the root, and may have been killed since.
        standing: State set by an operator.
    """

    root_id: str | None = None
    is_being_marked: bool = False
    standing: AdminState = AdminState.IN_USE

    @property
    def is_unused(self) -> bool:
        """Whether nothing from this home folder has used the root, or begun to."""
        return self.root_id is None and not self.is_being_marked


@dataclass(frozen=True, slots=True)
class DomainRegistry:
    """The registry file. The first process to use a domain writes it, and so does `etl-assets domains`."""

    file: Path

    def of(self, domain: str) -> Remembered:
        """Return the entry of a domain; the default entry if it has none."""
        return self._read().get(domain, Remembered())

    @property
    def is_empty(self) -> bool:
        """Whether no root was ever used from this home folder."""
        return all(each.is_unused for each in self._read().values())

    def marked(self, domain: str, root: str) -> str | None:
        """Return the id in a root's marker; None without a marker, or if it names another domain.

        Raises:
            Unanswered: the root cannot be read.
        """
        found = _read_marker(root)
        return found["id"] if found is not None and found["domain"] == domain else None

    def take_over(self, marked: Mapping[str, str | None]) -> None:
        """Register the roots that another home folder has used, if this home folder has registered none.

        A root without a marker is a disk that is not mounted, or that was lost. It is registered as
        `EXPECTED`: no new root is created there, and its marker is trusted once the root is back.

        Args:
            marked: The id in the marker of each domain's root, or None.
        """
        with self._alone():
            if self.is_empty:
                for domain, found in marked.items():
                    self._write(domain, replace(self.of(domain), root_id=found or EXPECTED))

    def set_standing(self, domain: str, standing: AdminState) -> None:
        """Store the state that an operator set for a domain."""
        with self._alone():
            self._write(domain, replace(self.of(domain), standing=standing))

    def strange(self, domain: str, root: str) -> str | None:
        """Return why a root is not the one that was used before; None if it is, or if none was used before.

        A bucket that was never used is checked for conditional writes (`conditional_write_check.py`), which
        leaves nothing behind. Folders need no check, as the platform itself implements their conditional
        writes.

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
        """Create, mark and register a root that was never used; a root that was used stays as it is.

        If several processes do this at the same time, one of them marks the root. The registry says that a
        root is being marked before it is: a root that another thread has just marked must not look like one
        that another home folder has used (`take_over`). The root may hang, so it is not accessed while the
        lock of the registry file is held.

        Raises:
            OSError: the root cannot be created.
            Unanswered: the root cannot be marked.
        """
        if known := self.of(domain).root_id:
            return
        if known is None:
            with self._alone():
                if self.of(domain).is_unused:
                    self._write(domain, replace(self.of(domain), is_being_marked=True))
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
                self._write(domain, replace(self.of(domain), root_id=found["id"], is_being_marked=False))

    def forget(self, domain: str) -> None:
        """Give up the root of a domain: the next use takes the root as it is then for the domain's own."""
        with self._alone():
            self._write(domain, replace(self.of(domain), root_id=None, is_being_marked=False))

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Hold the lock of the registry file, which sensors, runs and operators all change.

        It admits one writer at a time, of all threads and processes.
        """
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> Mapping[str, Remembered]:
        try:
            content = json.loads(self.file.read_text("utf-8"))
            return {
                name: Remembered(
                    root_id=each["root_id"],
                    is_being_marked=each.get("is_being_marked") is True,
                    standing=AdminState(each["standing"]),
                )
                for name, each in content.items()
            }
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(
                f"{self.file} is not what `etl-assets` wrote there: {error}",
                fix="correct it, or restore it from a backup; without it the roots of all domains are taken"
                " as they are",
                field=str(self.file),
            ) from error

    def _write(self, domain: str, remembered: Remembered) -> None:
        everything = {**self._read(), domain: remembered}
        content = {
            name: {"root_id": each.root_id, "standing": each.standing.value}
            | ({"is_being_marked": True} if each.is_being_marked else {})
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
    """Return the domain that a root's marker names; `?` if the marker cannot be parsed."""
    return _marker(marker)["domain"]


def _marker(content: bytes) -> dict[str, str]:
    try:
        marker = json.loads(content)
        return {"domain": str(marker["domain"]), "id": str(marker["id"])}
    except (ValueError, KeyError, TypeError):
        return {"domain": "?", "id": "?"}
