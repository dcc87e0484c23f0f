"""Find tables that no pipeline declares, by what lies under the roots of the failure domains.

A table of one domain is found by its log, a mirrored one also by its registers, of which a majority of the
domains has one. Belongs here: which tables are there. Does not belong here: opening one (`delta/table.py`),
and what it says of its asset (`delta/asset_record.py`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from etl_assets.errors import Unanswered
from etl_assets.mirroring.protocol.register import REGISTERS
from etl_assets.mirroring.stores.circuit_breaker import ask
from etl_assets.placement.access import opener
from etl_assets.placement.probes import Watch
from etl_assets.placement.site import Site

TABLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""What a table of a user's asset may be called."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """The undeclared tables that were found, and the domains that could not be asked, each with the
    reason.
    """

    names: tuple[str, ...]
    silent: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesUnderRoots:
    """The undeclared tables under the roots of an installation. Each table is looked for once.

    Attributes:
        sites: The sites of all domains.
        watch: Checks whether a root is its domain's own.
        declared: Names of the tables that pipelines declare, and of the platform's own.
    """

    sites: tuple[Site, ...]
    watch: Watch
    declared: frozenset[str]
    _listing: list[_Listing] = field(default_factory=list, compare=False, repr=False)
    _known: set[str] = field(default_factory=set, compare=False, repr=False)

    def names(self) -> tuple[str, ...]:
        """Return the names of all that can be found now, sorted."""
        return self._listed().names

    def has(self, name: str) -> bool:
        """Return whether there is such a table under any root that answers."""
        if name in self._known:
            return True
        if name in self.declared or not TABLE_NAME.fullmatch(name):
            return False
        if any(name in found for found in self._answers(name)[0]):
            self._known.add(name)
            return True
        return False

    def unlisted(self) -> tuple[str, ...]:
        """Return why tables may be missing from the answers; empty if none can be.

        A mirrored table has a register in a majority of the domains, so that a minority hides none.
        """
        silent = self._listed().silent
        return silent if 2 * len(silent) >= len(self.sites) else ()

    def _listed(self) -> _Listing:
        if not self._listing:
            found, silent = self._answers(None)
            names = {name for some in found for name in some if TABLE_NAME.fullmatch(name)}
            self._listing.append(_Listing(tuple(sorted(names - self.declared)), silent))
            self._known.update(self._listing[0].names)
        return self._listing[0]

    def _answers(self, name: str | None) -> tuple[list[Collection[str]], tuple[str, ...]]:
        """Ask all domains at once for one table or for all."""
        with ThreadPoolExecutor(len(self.sites)) as threads:
            answers = list(threads.map(partial(self._answer, name), self.sites))
        return [each for each in answers if not isinstance(each, str)], tuple(
            each for each in answers if isinstance(each, str)
        )

    def _answer(self, name: str | None, site: Site) -> Collection[str] | str:
        """Return the tables of a domain, or why it cannot be asked."""
        if (problem := self.watch.look(site)) is not None:
            return f"the tables in {site.name} cannot be listed: {problem}"
        try:
            found = set(self._with_register(site, name)) if len(self.sites) > 1 else set()
            if site.is_folder:
                folder = Path(site.root) / "tables"
                found |= ask(site.root, lambda: set(_with_log(folder, name)), self.watch.timeout_seconds)
        except Unanswered as error:
            return f"the tables in {site.name} cannot be listed: {error.message}"
        except OSError as error:
            return f"the tables in {site.name} cannot be listed: {error.filename}: {error.strerror}"
        return found

    def _with_register(self, site: Site, name: str | None) -> Iterator[str]:
        store = opener(self.sites, self.watch.observations, self.watch.timeout_seconds)(site.root)
        prefix, suffix = f"{REGISTERS}/", ".json"
        if name is not None:
            if store.get(f"{prefix}{name}{suffix}") is not None:
                yield name
            return
        for key in store.list(prefix):
            if key.endswith(suffix):
                yield key.removeprefix(prefix).removesuffix(suffix)


def _with_log(folder: Path, name: str | None) -> Iterator[str]:
    """Yield the tables in a folder that have a log.

    Raises:
        OSError: a folder cannot be listed.
    """
    names: Iterable[str] = [name] if name is not None else _names_in(folder)
    for each in names:
        if any(
            _names_in(folder / each / generation / "_delta_log") for generation in _names_in(folder / each)
        ):
            yield each


def _names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if it is not there or is a file."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return [each.name for each in folder.iterdir()]
    return []
