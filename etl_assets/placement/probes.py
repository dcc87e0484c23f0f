"""Checks of failure domains: a short check before a root is used, and a probe that writes and reads.

Both have a time limit. A probe adds its result to the observations; a short check adds only a missing answer.
A domain that failed is not asked again before its next probe is due. So not every caller waits for the
timeout of a dead root.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from etl_assets.errors import Unanswered
from etl_assets.mirroring.stores.circuit_breaker import Hangs, ask
from etl_assets.mirroring.stores.opening import open_store
from etl_assets.placement.domain_registry import DomainRegistry
from etl_assets.placement.health import (
    FAILURES_TO_UNAVAILABLE,
    FIRST_PAUSE_SECONDS,
    SLOW_SHARE,
    Health,
    HealthState,
    ProbeResult,
)
from etl_assets.placement.observations import Observations
from etl_assets.placement.site import Site

PROBE_KEY = "health/probe"
PROBED_LATELY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Checks and probes of the domains.

    Attributes:
        memory: Registry of the domains: the root that belongs to each.
        observations: Health of the domains, shared by the processes of this machine.
        timeout_seconds: How long a root may take to answer.
    """

    memory: DomainRegistry
    observations: Observations
    timeout_seconds: float

    def look(self, site: Site) -> str | None:
        """Return why a domain cannot be used now, or None if it can.

        Reads the marker of the root. A domain that failed lately is probed instead, once its next probe is
        due.
        """
        health = self.observations.of(site.name)
        if health.problem is not None:
            return self._again(site, health).problem
        began = time.monotonic()
        try:
            return self._strange(site)
        except Unanswered as error:
            self.observations.add(
                site.name, self._sighting(began, error.message, hangs=isinstance(error, Hangs))
            )
            return error.message

    def make_sure(self, site: Site) -> str | None:
        """Return why no stage can be placed in a domain, or None if one can.

        Like `look`, but also probes the domain, unless it was checked within `PROBED_LATELY_SECONDS`.
        """
        problem = self.look(site)
        seen_at = self.observations.of(site.name).seen_at
        if problem is not None or time.monotonic() - seen_at < PROBED_LATELY_SECONDS:
            return problem
        return self.probe(site).problem

    def probe(self, site: Site) -> Health:
        """Write a small object under a root, read it back, and add the result to the observations.

        The probe is made at once, even if none is due. A root that was never used is only checked: nothing is
        created on it.

        Returns:
            The health of the domain after the probe.
        """
        began, hangs = time.monotonic(), False
        try:
            problem = self._strange(site)
            if self.memory.of(site.name).root_id is None:
                return self._unused(site, problem)
            if problem is None:
                ask(
                    site.root,
                    lambda: _write_and_read(site.root),
                    self.timeout_seconds,
                    small=partial(self.memory.strange, site.name, site.root),
                    slow_seconds=self.timeout_seconds,
                )
        except Unanswered as error:
            problem, hangs = error.message, isinstance(error, Hangs)
        return self.observations.add(site.name, self._sighting(began, problem, hangs=hangs))

    def probe_all(self, sites: Iterable[Site]) -> dict[str, Health]:
        """Probe concurrently all domains that are due.

        A domain that fails is probed again until it answers or counts as unavailable. One that hangs counts
        so at once.

        Returns:
            The health of each domain, by name.
        """
        todo, found = list(sites), {}
        for _ in range(FAILURES_TO_UNAVAILABLE):
            with ThreadPoolExecutor(max(1, len(todo))) as threads:
                seen = threads.map(lambda site: self._again(site, self.observations.of(site.name)), todo)
                found |= {site.name: health for site, health in zip(todo, seen, strict=True)}
            todo = [
                site
                for site in todo
                if found[site.name].failures
                and found[site.name].state is not HealthState.UNAVAILABLE
                # A root that was never used has no observed health, and is not probed again.
                and found[site.name].seen_at
            ]
            if not todo:
                break
            time.sleep(max(0.0, max(found[site.name].next_probe for site in todo) - time.monotonic()))
        return found

    def is_new(self, sites: Sequence[Site]) -> bool:
        """Return whether no root was ever used, as far as the registry and the roots that answer show."""
        return self.memory.is_empty and not any(self._marked(sites).values())

    def take_over(self, sites: Sequence[Site]) -> None:
        """Register the roots that another home folder has used, if this home folder has registered none."""
        if self.memory.is_empty and any((marked := self._marked(sites)).values()):
            self.memory.take_over(marked)

    def take(self, site: Site) -> str | None:
        """Take a root into use that was never used.

        Returns:
            Why it cannot be taken into use; None if it was, now or before.
        """
        if self.memory.of(site.name).root_id:
            return None
        try:
            problem = self._strange(site)
            if problem is None:
                ask(
                    site.root,
                    lambda: self.memory.take(site.name, site.root),
                    self.timeout_seconds,
                    small=partial(self.memory.strange, site.name, site.root),
                )
        except Unanswered as error:
            return error.message
        except OSError as error:
            return f"its root {site.root} cannot be used ({error.strerror})"
        return problem

    def _again(self, site: Site, health: Health) -> Health:
        """Return the health of a domain, after probing it if a probe is due.

        One process probes a domain that failed. The other processes use its last result.
        """
        if health.problem is None:
            return self.probe(site)
        if not health.is_due(time.monotonic()):
            return health
        until = time.monotonic() + self.timeout_seconds + FIRST_PAUSE_SECONDS
        return self.probe(site) if self.observations.claim(site.name, until) else health

    def _marked(self, sites: Sequence[Site]) -> dict[str, str | None]:
        """Return the id in the marker of each root; None for a root without one or that does not answer."""

        def marked(site: Site) -> str | None:
            try:
                return ask(site.root, lambda: self.memory.marked(site.name, site.root), self.timeout_seconds)
            except Unanswered:
                return None

        with ThreadPoolExecutor(len(sites)) as threads:
            found = threads.map(marked, sites)
            return {site.name: mark for site, mark in zip(sites, found, strict=True)}

    def _unused(self, site: Site, problem: str | None) -> Health:
        """Return the health of a root that was never used, and forget what was observed of it."""
        if self.observations.of(site.name) != Health():
            self.observations.forget(site.name)
        return Health(state=HealthState.DEGRADED, why=problem, failures=1) if problem else Health()

    def _strange(self, site: Site) -> str | None:
        """Return why a root is not the domain's own, or None.

        Raises:
            Unanswered: the root does not answer in time.
        """
        strange = ask(site.root, partial(self.memory.strange, site.name, site.root), self.timeout_seconds)
        return None if strange is None else f"{strange} ({site.root})"

    def _sighting(self, began: float, problem: str | None, *, hangs: bool) -> ProbeResult:
        ended = time.monotonic()
        slow = ended - began > SLOW_SHARE * self.timeout_seconds
        return ProbeResult(began=began, ended=ended, problem=problem, hangs=hangs, slow=slow)


def _write_and_read(root: str) -> None:
    """Write the probe object under a root and read it back.

    Raises:
        Unanswered: the root cannot be written or read.
    """
    store, content = open_store(root), uuid.uuid4().hex.encode()
    store.put(PROBE_KEY, [content])
    found = store.get(PROBE_KEY)
    # Another process may have written its own object in the meantime: compare the lengths only.
    if found is None or len(found.content) != len(content):
        raise Unanswered(
            f"{root}: what was written to {PROBE_KEY} cannot be read back",
            fix="see that the disk or bucket is whole",
            store=root,
            key=PROBE_KEY,
        )
