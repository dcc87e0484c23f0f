"""The journal of a pipeline in one domain, brought up to date from those of the others.

An acknowledged file is in a majority of the domains, maybe not in the one that reads. So a domain first
copies what others have and it lacks. A file has one name, one content and one modification time in every
domain: it counts as read everywhere once one has read it. A file that only a minority has, whose request was
refused, is read too: its client may send it again, and the ids of records or its key make that count once.

A domain that does not answer is left out. What only it has is read when it is back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.delta.log.durability import write_durably
from etl_assets.errors import Unanswered
from etl_assets.mirroring.stores.circuit_breaker import ask
from etl_assets.placement.access import DomainBreaker
from etl_assets.sources.http.journal_file import JournalName, journal_path
from etl_assets.sources.landing import parse_day

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.placement.site import Site

logger = logging.getLogger("etl_assets")
_AT_ONCE = 8
_RACY_NS = 10_000_000_000
"""A folder that changed this recently may have changed again within one tick of its clock."""
_copied: dict[tuple[Path, Path], int] = {}
"""Modification time of a day's folder of another domain, all files of which were copied by this process."""


def journal_folder(domain: FailureDomain, pipeline: str) -> Path:
    """Return a domain's journal of a pipeline, with all that the domains that answer have."""
    own = journal_path(domain.root, pipeline)
    for site in domain.sites:
        if site.name != domain.name and site.is_folder:
            _copy_from(site, domain, own, pipeline)
    return own


def _copy_from(site: Site, domain: FailureDomain, own: Path, pipeline: str) -> None:
    """Copy the files that another domain has and this one lacks."""
    observations = domain.observations
    if observations is not None and DomainBreaker(site.name, observations).shut() is not None:
        return
    other = journal_path(Path(site.root), pipeline)
    try:
        days = ask(site.root, lambda: list(_changed_days(other, own)), domain.timeout_seconds)
        for day, names, modified_ns in days:
            there = {path.name for path in _listed(own / day)}
            missing = [name for name in sorted(names, key=str) if str(name) not in there]
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                for done in [threads.submit(_copy, site, domain, other, own, name) for name in missing]:
                    done.result()
            _copied[other / day, own / day] = modified_ns
    except (_OtherFailed, Unanswered, OSError) as error:
        if isinstance(error, OSError) and not str(error.filename or "").startswith(str(other)):
            raise  # of the own disk
        logger.warning("journal of %s: %s is left out: %s", pipeline, site.name, error)


class _OtherFailed(Exception):
    """A file of the other domain cannot be read."""


def _changed_days(other: Path, own: Path) -> Iterator[tuple[str, list[JournalName], int]]:
    for folder in _listed(other):
        if parse_day(folder.name) is None:
            continue
        modified_ns = folder.stat().st_mtime_ns
        if _copied.get((folder, own / folder.name)) == modified_ns:
            continue
        found = [name for path in _listed(folder) if (name := JournalName.parse(path.name)) is not None]
        is_racy = time.time_ns() - modified_ns < _RACY_NS
        yield folder.name, found, -1 if is_racy else modified_ns


def _copy(site: Site, domain: FailureDomain, other: Path, own: Path, name: JournalName) -> None:
    path = Path(name.day.isoformat()) / str(name)
    try:
        content = ask(site.root, partial((other / path).read_bytes), domain.timeout_seconds)
    except FileNotFoundError:
        return  # removed after it was read
    except (OSError, Unanswered) as error:
        raise _OtherFailed(str(error)) from error
    write_durably(own / path, content, mtime_ns=name.mtime_ns)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
