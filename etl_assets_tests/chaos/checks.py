"""What must hold whatever befell a world, once it has settled. Each says what is wrong, in sentences; none
when all is well.

Replicas are compared byte by byte through their domains' stores, wherever those are; what a voter's register
says of its own replica is believed only as far as which folder it is.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from etl_assets.mirroring.protocol.named_files import NamedFile, files_named, files_removed
from etl_assets.mirroring.stores.store import Store
from etl_assets.steps.step import platform_table
from etl_assets_tests.chaos.run_process import ORDERS
from etl_assets_tests.chaos.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A table as one domain holds it."""

    table: str
    domain: str
    folder: str
    store: Store
    entries: tuple[bytes | None, ...]

    def content(self, path: str) -> bytes | None:
        found = self.store.get(f"{self.folder}/{path}")
        return None if found is None else found.content


def copies(world: World) -> dict[str, list[Copy]]:
    """Every table that has versions, as each domain holds it."""
    stores = {root.name: root.store for root in world.roots}
    placement = world.placement()
    found: dict[str, list[Copy]] = {}
    for contract in world.tables:
        mirrored = world.replication(contract.name, placement.domains[0])
        if (state := mirrored.acknowledged()) is None or state.version < 0:
            continue
        found[contract.name] = [
            Copy(
                table=contract.name,
                domain=holding.domain,
                folder=holding.folder,
                store=stores[holding.domain],
                entries=tuple(
                    _entry(stores[holding.domain], holding.folder, number)
                    for number in range(state.version + 1)
                ),
            )
            for holding in mirrored.holdings()
        ]
    return found


def problems(world: World) -> list[str]:
    """All that is wrong."""
    found = copies(world)
    differing = [
        what
        for of_table in found.values()
        for other in of_table[1:]
        for what in differences(of_table[0], other)
    ]
    logs = {table: of_table[0] for table, of_table in found.items()}
    # Of tables whose replicas differ there is no saying what their rows are.
    return [*missing_domains(world, found), *differing, *lost_commits(world, logs)] or [*wrong_rows(world)]


def missing_domains(world: World, found: Mapping[str, list[Copy]]) -> Iterator[str]:
    """Every domain has a copy of every table, and a reader in it reads that one."""
    for table, of_table in found.items():
        if missing := set(world.names) - {copy.domain for copy in of_table}:
            yield f"{table}: no copy in {', '.join(sorted(missing))}"
        folders = {copy.domain: copy.folder for copy in of_table}
        for domain in world.placement().domains:
            read = platform_table(table, domain)
            read.version()
            if read.path != domain.root / folders[domain.name]:
                yield f"{table}: {domain.name} reads {read.path}, and has {folders[domain.name]}"


def differences(one: Copy, other: Copy) -> Iterator[str]:
    """Where two domains hold different bytes: the first version of the log that differs, else each such
    data file.
    """
    for version, (entry, its) in enumerate(zip(one.entries, other.entries, strict=True)):
        if entry != its:
            yield (
                f"{one.table}: version {version} of {len(one.entries)} is {_told(entry)} in {one.domain}"
                f" ({one.folder}),"
                f" {_told(its)} in {other.domain} ({other.folder}){_first_difference(entry, its)}"
            )
            return
    for file in _in_use(one.entries):
        content, its = one.content(file.path), other.content(file.path)
        if content is None or content != its:
            yield (
                f"{one.table}: {file.path} ({file.size} bytes) is {_told(content)} in {one.domain}"
                f" ({one.folder}),"
                f" {_told(its)} in {other.domain} ({other.folder})"
            )


def lost_commits(world: World, logs: Mapping[str, Copy]) -> Iterator[str]:
    """What was reported as acknowledged is in the log, with the bytes it had."""
    for note in world.acknowledged():
        entries = logs[note["table"]].entries
        entry = entries[note["version"]] if note["version"] < len(entries) else None
        if entry is None or hashlib.sha256(entry).hexdigest() != note["entry"]:
            yield (
                f"{note['table']}: version {note['version']}, reported in {note['domain']} as"
                f" {note['entry'][:12]}, is now"
                f" {_told(entry)} of {len(entries)} versions"
            )


def wrong_rows(world: World) -> Iterator[str]:
    """Every event that came is in each table once, offsets have no holes, and the declared pipeline is as
    its reference.
    """
    for table in ORDERS:
        rows = rows_of(world, table)
        ids = sorted(row["event_id"] for row in rows)
        if ids != sorted(world.landed):
            lost = sorted(set(world.landed) - set(ids))
            doubled = sorted({each for each, after in itertools.pairwise(ids) if each == after})
            yield f"{table}: {len(rows)} rows of {len(world.landed)} events; lost {lost}, doubled {doubled}"
        if table != "warehouse_rows" and sorted(row["offset"] for row in rows) != list(range(len(rows))):
            yield f"{table}: its offsets are not 0 to {len(rows) - 1}"
    yield from world.parts.wrong_rows(lambda table: rows_of(world, table))


def rows_of(world: World, table: str) -> list[dict]:
    """All rows of a table."""
    from deltalake import DeltaTable

    found = platform_table(table, world.placement().domains[0])
    if (version := found.version()) < 0:
        return []
    return DeltaTable(str(found.path), version=version).to_pyarrow_dataset().to_table().to_pylist()


def _entry(store: Store, folder: str, version: int) -> bytes | None:
    found = store.get(f"{folder}/_delta_log/{version:020d}.json")
    return None if found is None else found.content


def _in_use(entries: tuple[bytes | None, ...]) -> list[NamedFile]:
    files: dict[str, NamedFile] = {}
    for entry in entries:
        assert entry is not None
        for path in files_removed(entry):
            files.pop(path, None)
        files |= {file.path: file for file in files_named(entry)}
    return list(files.values())


def _told(content: bytes | None) -> str:
    return (
        "missing" if content is None else f"{hashlib.sha256(content).hexdigest()[:12]} ({len(content)} bytes)"
    )


def _first_difference(one: bytes | None, other: bytes | None) -> str:
    lines = zip((one or b"").splitlines(), (other or b"").splitlines(), strict=False)
    differing = next(((line, its) for line, its in lines if line != its), None)
    if differing is None:
        return ""
    return f"; first {differing[0][:200]!r}, {differing[1][:200]!r}"
