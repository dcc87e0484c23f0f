"""The history of captured tables has every change once, and the versions of rows equal the source at each
commit: through kills, key changes, truncates and further copies.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from etl_assets.captures import roll_back
from etl_assets.failpoints import Failpoint
from etl_assets.query.sql import run_query
from etl_assets_tests.sources.audited import Audited, waldump
from etl_assets_tests.sources.captured import CAPTURE, Captured
from etl_assets_tests.sources.table_versions import plain_rows
from etl_assets_tests.sources.writers import statement

pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(not waldump().exists(), reason="the server of this machine comes without pg_waldump"),
]
OF_RECORDS = (Failpoint.SPOOL_AFTER_STATE, Failpoint.TABLE_BEFORE_COMMIT, Failpoint.TABLE_AFTER_COMMIT)
OF_HISTORY = (
    Failpoint.STAGE_AFTER_WRITE,
    Failpoint.TABLE_BEFORE_COMMIT,
    Failpoint.TABLE_DURING_COMMIT,
    Failpoint.TABLE_AFTER_COMMIT,
)
KEYS = {"item": ("id", "part"), "price": ("code",), "note": ("id",)}
_MAKE = """
CREATE TABLE item (
    id bigint, part int, title varchar(40), amount numeric(10, 2), sold timestamptz, is_new boolean,
    PRIMARY KEY (part, id)
);
CREATE TABLE price (code varchar(20) NOT NULL, value double precision, since date);
CREATE UNIQUE INDEX price_code ON price (code);
ALTER TABLE price REPLICA IDENTITY USING INDEX price_code;
CREATE TABLE note (id int PRIMARY KEY, body text, amount numeric);
ALTER TABLE note ALTER body SET STORAGE EXTERNAL;
"""
_FILL = """
INSERT INTO item SELECT i, i % 3, 'item ' || i, i + 0.25, now(), i % 2 = 0 FROM generate_series(1, 60) i;
INSERT INTO price SELECT 'code ' || i, i / 3.0, '2026-01-01'::date + i FROM generate_series(1, 20) i;
INSERT INTO note SELECT i, repeat('a long note ' || i, 400), i FROM generate_series(1, 20) i;
"""


def change(dice: random.Random) -> str:
    """Return a statement that changes some rows of one table."""
    if dice.random() < 0.7:
        return statement(dice)
    id_ = dice.randrange(1, 30)
    return dice.choice(
        (
            f"UPDATE note SET amount = {dice.randrange(100)} WHERE id < {id_}",  # its body is not in the log
            f"UPDATE note SET body = repeat('{dice.random()}', 300) WHERE id = {id_}",
            f"UPDATE note SET body = NULL WHERE id = {id_}",
            f"UPDATE note SET amount = amount WHERE id > {id_}",
            f"DELETE FROM note WHERE id = {id_}",
            f"INSERT INTO note VALUES ({id_}, repeat('{id_} ', 2000), 0) ON CONFLICT DO NOTHING",
            "TRUNCATE note" if dice.random() < 0.2 else f"DELETE FROM note WHERE id > {id_}",
        )
    )


class World:
    """A shop with an audit, whose tables have a history."""

    def __init__(self, server: Any, folder: Any, seed: int, ends: ExitStack, **capture: Any) -> None:
        self.dice = random.Random(seed)
        self.shop = Captured.create(server, folder, history=True, **capture)
        ends.callback(self.shop.close)
        self.audit = Audited(server, server.database_url(self.shop.name), f"{self.shop.name}_wal")
        self.audit.begin()
        ends.callback(self.audit.close)
        self.shop.execute(_MAKE)
        for table, keys in KEYS.items():
            self.audit.follow(self.shop.session, table, *keys)
        self.shop.execute(_FILL)
        self.shop.discover()
        self.befell: Counter[str] = Counter()

    def write(self) -> None:
        """Commit some transactions."""
        for _ in range(self.dice.randrange(1, 6)):
            with suppress(psycopg.IntegrityError), self.shop.session.transaction():
                for _ in range(self.dice.choice((1, 1, 2, 5))):
                    self.shop.execute(change(self.dice))

    def act(self) -> None:
        """Let the platform do something for one table, or die while it does."""
        table = self.dice.choice(list(KEYS))
        match kind := self.dice.choice(("ingest", "ingest", "history", "history", "die", "die", "copy")):
            case "ingest":
                self.shop.ingest(table)
            case "history":
                self.shop.load(f"{table}_history")
            case "die" if self.dice.random() < 0.4:
                self.shop.try_to_die(table, self.dice.choice(OF_RECORDS).value)
            case "die":
                self.shop.try_to_die(table, self.dice.choice(OF_HISTORY).value, "history")
            case "copy":
                self.copy(table)
        self.befell[kind] += 1

    def copy(self, table: str) -> None:
        """Copy a table again, after all of its changes so far were read: others are lost by that."""
        self.shop.settle(table)
        self.shop.look()
        self.shop.ingest(table)
        roll_back(self.shop.settings, CAPTURE, f"public.{table}", copies=True)

    def finish(self) -> None:
        """Let everything that was committed arrive."""
        self.shop.settle(*KEYS, rounds=30)
        for table in KEYS:
            self.shop.look()
            while self.shop.ingest(table).commits:
                pass
            self.shop.load(f"{table}_history")

    def versions(self, table: str) -> list[dict[str, Any]]:
        """Return the versions of a table's rows, as a user asks for them."""
        domain = self.shop.settings.placement().reader()
        found = run_query(f"SELECT * FROM {CAPTURE}_{table}_versions", domain)
        return [row for batch in found.batches() for row in batch.to_pylist()]


@pytest.fixture
def world(postgres_server, tmp_path, request) -> Iterator[World]:
    with ExitStack() as ends:
        yield World(postgres_server, tmp_path, request.param, ends)


@pytest.mark.parametrize(
    "world", [1, *(pytest.param(each, marks=pytest.mark.full) for each in range(2, 22))], indirect=True
)
def test_versions_equal_the_source_at_each_commit_whatever_fails(
    world: World, request: pytest.FixtureRequest, tell: Callable[[str], None]
):
    world.finish()
    begins = max(world.audit.commits().values())
    for _ in range(25 if request.node.callspec.params["world"] == 1 else 60):
        world.write()
        world.act()
    world.finish()
    compared = sum((compare(world, table, begins) for table in KEYS), Counter())
    tell(f"history: {dict(compared)} compared; {dict(world.befell)}")


def compare(world: World, table: str, begins: int) -> Counter[str]:
    """Compare the versions of a table's rows with the source at each of its commits."""
    records = world.shop.home.rows(f"{CAPTURE}_{table}_source")
    history = world.shop.home.rows(f"{CAPTURE}_{table}_history")
    assert sorted(row["_offset"] for row in history) == sorted(row["offset"] for row in records)
    versions = world.versions(table)
    commits = {lsn for lsn, _ in world.audit._notes(table)}
    # 1. Each version begins with a change, or with the first copy: no copy has made others.
    first_copy = min(row["lsn_in_source"] for row in history)
    false = {each["valid_from_lsn"] for each in versions} - commits - {first_copy}
    assert not false, [each for each in versions if each["valid_from_lsn"] in false]
    # 2. At each commit, the rows of the source were the versions at that place.
    compared = Counter(versions=len(versions))
    for lsn, wanted in world.audit.states(table, [each + 1 for each in commits if each >= begins]):
        at = [each for each in versions if is_at(each, lsn - 1)]
        found = {tuple(each[key] for key in KEYS[table]): own(each) for each in at}
        assert len(found) == len(at), f"{table} at {lsn:X}: a row has two versions"
        assert plain_rows(found) == plain_rows(wanted), f"{table} at {lsn:X}"
        compared += Counter(commits=1, rows=len(at))
    # 3. Neighbours differ, and their times do not overlap.
    by_key: dict[Any, list[dict[str, Any]]] = {}
    for each in sorted(versions, key=lambda each: each["valid_from_lsn"]):
        by_key.setdefault(tuple(each[key] for key in KEYS[table]), []).append(each)
    for of_key in by_key.values():
        for one, other in pairwise(of_key):
            assert one["valid_from"] <= one["valid_to"] <= other["valid_from"]
            assert one["valid_to_lsn"] < other["valid_from_lsn"] or own(one) != own(other)
        assert [each["is_current"] for each in of_key[:-1]] == [False] * (len(of_key) - 1)
    return compared


def is_at(version: dict[str, Any], lsn: int) -> bool:
    ends = version["valid_to_lsn"]
    return version["valid_from_lsn"] <= lsn and (ends is None or ends > lsn)


def own(version: dict[str, Any]) -> dict[str, Any]:
    added = ("valid_from", "valid_to", "is_current", "valid_from_lsn", "valid_to_lsn")
    return {name: value for name, value in version.items() if name not in added}
