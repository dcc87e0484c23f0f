"""The journal: files that a majority of the ingest domains has before their requests are answered.

Belongs here: writing a file into the domains. Does not belong here: which requests share one
(`group_commit.py`), and reading (`sources/http/`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from etl_assets.delta.log.durability import write_durably
from etl_assets.errors import QuorumUnavailable, Unanswered
from etl_assets.mirroring.stores.circuit_breaker import ask
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domain_registry import AdminState
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.sources.http.journal_file import JournalName, journal_path

logger = logging.getLogger("etl_assets.serve")
_WRITES_AT_ONCE = 8


@dataclass(slots=True, kw_only=True)
class JournalFile:
    """A file to store.

    Attributes:
        pipeline: The pipeline.
        name: Its name.
        content: Its content.
        stored: Domains that have it durably.
    """

    pipeline: str
    name: JournalName
    content: bytes
    stored: set[str] = field(default_factory=set)

    @property
    def path(self) -> Path:
        """Its path in the journal of the pipeline."""
        return Path(self.name.day.isoformat()) / str(self.name)


class Journal:
    """The journals of all domains that the placement policy allows to ingest."""

    def __init__(self, placement: Placement, *, timeout_seconds: float) -> None:
        self._placement, self._timeout = placement, timeout_seconds
        self.domains = tuple(
            each
            for each in placement.domains
            if placement.site(each.name).may_lead
            and placement.policy.allows(PlacementClass.INGEST, each.name)
        )
        self._threads = ThreadPoolExecutor(_WRITES_AT_ONCE * max(1, len(self.domains)), "journal")
        self._going_on: set[asyncio.Future[None]] = set()

    @property
    def majority(self) -> int:
        """How many domains make a file durable."""
        return len(self.domains) // 2 + 1

    def problems(self) -> dict[str, str]:
        """Return why domains cannot store files now; domains that can are left out."""
        found = ((each, self._problem(each)) for each in self.domains)
        return {each.name: _without_root(each, why) for each, why in found if why is not None}

    def not_allowed(self, domains: Collection[str]) -> dict[str, str]:
        """Return why none of some domains may ingest now; empty if one may.

        The policy, an operator and a domain that is down each keep ingest out of a domain.
        """
        ingest = {each.name: each for each in self.domains}
        problems: dict[str, str] = {}
        for name in domains:
            domain = ingest.get(name)
            why = (
                "the placement policy does not allow it to ingest"
                if domain is None
                else self._placement.problem(domain)
            )
            if why is None:
                return {}
            problems[name] = why if domain is None else _without_root(domain, why)
        return problems

    async def store(self, file: JournalFile) -> None:
        """Return once a majority of the domains has a file durably. Safe to repeat.

        The others get it in the background if they can.

        Raises:
            QuorumUnavailable: no majority stored it in time. Some domains may have it, now or later.
        """
        loop = asyncio.get_running_loop()
        left = [each for each in self.domains if each.name not in file.stored]
        writes = {loop.run_in_executor(self._threads, self._write, each, file): each for each in left}
        missing = {each.name: f"no answer within {self._timeout:g} s" for each in left}
        deadline = loop.time() + self._timeout
        waiting = set(writes)
        while len(file.stored) < self.majority and waiting:
            done, waiting = await asyncio.wait(
                waiting, timeout=max(0.0, deadline - loop.time()), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            for each in done:
                if (why := _why(each)) is not None:
                    missing[writes[each].name] = _without_root(writes[each], why)
        for each in waiting:
            self._going_on.add(each)
            each.add_done_callback(self._ended)
        if len(file.stored) < self.majority:
            missing = {name: why for name, why in missing.items() if name not in file.stored}
            raise QuorumUnavailable(
                f"{len(file.stored)} of {len(self.domains)} ingest domains stored the events, and"
                f" {self.majority} are needed: {'; '.join(f'{n}: {w}' for n, w in missing.items())}",
                fix="send the request again, with its Idempotency-Key",
                missing=missing,
            )

    async def close(self) -> None:
        """Let writes that go on end, within the time of one."""
        if self._going_on:
            await asyncio.wait(self._going_on, timeout=self._timeout)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ended(self, write: asyncio.Future[None]) -> None:
        self._going_on.discard(write)
        if (why := _why(write)) is not None:
            logger.warning("a journal file did not reach a domain: %s", why)

    def _problem(self, domain: FailureDomain) -> str | None:
        """Return why a domain cannot store files now. A drained one can: its copies are kept up to date."""
        known = self._placement.memory.of(domain.name)
        if known.standing is AdminState.FAILED:
            return "failed by an operator"
        problem = self._placement.unusable(domain)
        if problem is None and not known.root_id:
            self._placement.watch.take_over(self._placement.sites)
            problem = self._placement.watch.take(self._placement.site(domain.name))
        return problem

    def _write(self, domain: FailureDomain, file: JournalFile) -> None:
        """Store a file in a domain.

        Raises:
            Unanswered: the domain does not answer, or is not to be used.
            OSError: its disk refuses the file.
        """
        root = str(domain.root)
        if (problem := self._problem(domain)) is not None:
            raise Unanswered(problem, fix="bring the domain back", store=root, key=str(file.name))
        folder = journal_path(domain.root, file.pipeline)
        ask(root, lambda: _write_file(domain.root, folder / file.path, file), domain.timeout_seconds)
        file.stored.add(domain.name)


def _write_file(root: Path, path: Path, file: JournalFile) -> None:
    if not path.parent.is_dir():
        _make_folders(root, path.parent)
    write_durably(path, file.content, mtime_ns=file.name.mtime_ns)


def _make_folders(root: Path, folder: Path) -> None:
    """Create folders below a root, durably. The root itself is there."""
    above = [each for each in (folder, *folder.parents) if each.is_relative_to(root) and each != root]
    for each in reversed(above):
        each.mkdir(exist_ok=True)
    for each in {root, *(each.parent for each in above)}:
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _without_root(domain: FailureDomain, problem: str) -> str:
    """Return a problem in which a domain has its name: clients are not told where its root is."""
    root = str(domain.root)
    return problem.removeprefix(f"{root}: ").replace(root, domain.name)


def _why(write: asyncio.Future[None]) -> str | None:
    """Return why a write failed; None if it did not."""
    error = write.exception()
    if error is None:
        return None
    if isinstance(error, Unanswered):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error)
    raise error
