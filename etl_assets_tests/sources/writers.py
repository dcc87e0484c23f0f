"""Sessions that change the tables of a shop at the same time, and pgbench beside them.

Belongs here: who writes what. Does not belong here: what the tables must then have (`audited.py`).
"""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from etl_assets_tests.pgbench import pgbench
from etl_assets_tests.sources.audited import Audited

ACCOUNTS = 200
TELLERS, BRANCHES = 10, 2
ITEMS = 60
STORIES = 120
TABLES = {
    "pgbench_accounts": ("aid",),
    "pgbench_tellers": ("tid",),
    "pgbench_branches": ("bid",),
    "pgbench_history": ("id",),
    "item": ("id", "part"),
    "price": ("code",),
    "story": ("id",),
}
"""Tables, and their keys in the source. The log leaves the long texts of `story` out of most updates."""
_MAKE = """
CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(20));
CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(20));
CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(20));
CREATE TABLE pgbench_history (
    id bigserial PRIMARY KEY, tid int, bid int, aid int, delta int, mtime timestamp, filler char(10)
);
CREATE TABLE item (
    id bigint, part int, title varchar(40), amount numeric(10, 2), sold timestamptz, is_new boolean,
    PRIMARY KEY (part, id)
);
CREATE TABLE price (code varchar(20) NOT NULL, value double precision, since date);
CREATE UNIQUE INDEX price_code ON price (code);
ALTER TABLE price REPLICA IDENTITY USING INDEX price_code;
CREATE TABLE story (id bigint PRIMARY KEY, body text, edits int, note text);
ALTER TABLE story ALTER body SET STORAGE EXTERNAL, ALTER note SET STORAGE EXTERNAL;
"""
_FILL = f"""
INSERT INTO pgbench_branches SELECT i, 0, '' FROM generate_series(1, {BRANCHES}) i;
INSERT INTO pgbench_tellers SELECT i, i % {BRANCHES} + 1, 0, '' FROM generate_series(1, {TELLERS}) i;
INSERT INTO pgbench_accounts SELECT i, i % {BRANCHES} + 1, 0, '' FROM generate_series(1, {ACCOUNTS}) i;
INSERT INTO item SELECT i, i % 3, 'item ' || i, i + 0.25, now(), i % 2 = 0 FROM generate_series(1, {ITEMS}) i;
INSERT INTO price SELECT 'code ' || i, i / 3.0, '2026-01-01'::date + i FROM generate_series(1, 20) i;
INSERT INTO story SELECT i, repeat(md5(i::text), 90), 0, repeat('n' || i, i * 40)
    FROM generate_series(1, {STORIES}) i;
"""
_PGBENCH = f"""
\\set aid random(1, {ACCOUNTS})
\\set bid random(1, {BRANCHES})
\\set tid random(1, {TELLERS})
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
    VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""
"""The transaction of `pgbench --builtin=tpcb-like`, on fewer accounts."""


def make_tables(session: psycopg.Connection, audit: Audited) -> None:
    """Make the tables, and fill them with few rows."""
    session.execute(_MAKE.encode())
    for table, keys in TABLES.items():
        audit.follow(session, table, *keys)
    session.execute(_FILL.encode())


@dataclass(slots=True)
class Writers:
    """Threads that write until they are told to leave. A server that is down is tried again.

    Attributes:
        url: The database's, as the writers reach it.
        seed: Decides what each thread writes.
        pause_seconds: Between two transactions of a thread, at most.
        transactions: How many were committed, and how many rolled back.
    """

    url: str
    seed: int
    pause_seconds: float = 0.06
    transactions: list[int] = field(default_factory=lambda: [0, 0])
    has_stars: threading.Event = field(default_factory=threading.Event)
    """Set once the table `story` has the column `stars`."""
    _leaving: threading.Event = field(default_factory=threading.Event)
    _resting: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, sessions: int) -> None:
        for number in range(sessions):
            dice = random.Random(f"{self.seed}/{number}")
            thread = threading.Thread(target=self._write, args=(dice,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def leave(self) -> None:
        self._leaving.set()
        for each in self._threads:
            each.join(30)
            assert not each.is_alive()

    def _write(self, dice: random.Random) -> None:
        while not self._leaving.is_set():
            with suppress(psycopg.OperationalError), psycopg.connect(self.url) as session:
                session.execute("SET lock_timeout = '2s'")
                session.commit()
                while not self._leaving.wait(dice.random() * self.pause_seconds):
                    self._transaction(session, dice)
            self._leaving.wait(0.2)

    def _transaction(self, session: psycopg.Connection, dice: random.Random) -> None:
        try:
            for _ in range(dice.choice((1, 1, 2, 3, 8))):
                session.execute(self._statement(dice).encode())
                if dice.random() < 0.1:
                    session.execute("SAVEPOINT here")
                    session.execute(self._statement(dice).encode())
                    session.execute("ROLLBACK TO here" if dice.random() < 0.5 else "RELEASE here")
            is_kept = dice.random() < 0.85
            (session.commit if is_kept else session.rollback)()
        except (psycopg.IntegrityError, psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
            session.rollback()
            is_kept = False
        self.transactions[not is_kept] += 1

    def _statement(self, dice: random.Random) -> str:
        kind = dice.random()
        return statement(dice) if kind < 0.7 else of_story(dice, has_stars=self.has_stars.is_set())


def of_story(dice: random.Random, *, has_stars: bool) -> str:
    """Return a statement that changes some rows of `story`, mostly without a change of their long texts."""
    key, text = dice.randrange(1, STORIES + 20), f"repeat(md5('{dice.random()}'), {dice.randrange(120)})"
    column = dice.choice(("body", "note"))
    return dice.choice(
        (
            *(f"UPDATE story SET edits = edits + 1 WHERE id BETWEEN {key} AND {key + 5}",) * 2,
            f"UPDATE story SET stars = {key} WHERE id = {key}"
            if has_stars
            else f"UPDATE story SET edits = NULL WHERE id = {key}",
            f"UPDATE story SET {column} = {text} WHERE id = {key}",
            f"UPDATE story SET {column} = NULL, edits = -1 WHERE id = {key}",
            f"UPDATE story SET id = {dice.randrange(1, STORIES + 20)} WHERE id = {key}",
            f"UPDATE story SET id = {dice.randrange(1, STORIES + 20)}, {column} = {text} WHERE id = {key}",
            f"DELETE FROM story WHERE id = {key}",
            f"INSERT INTO story VALUES ({key}, {text}, 0, {text}) ON CONFLICT (id) DO UPDATE SET edits = 0",
            "TRUNCATE story" if dice.random() < 0.05 else f"UPDATE story SET edits = 1 WHERE id < {key // 4}",
        )
    )


def statement(dice: random.Random) -> str:
    """Return a statement that changes some rows of one table."""
    key, part, code = dice.randrange(1, ITEMS + 30), dice.randrange(3), f"code {dice.randrange(30)}"
    amount = dice.choice(("NULL", "0.00", f"{dice.randrange(10**9) / 100:.2f}", "-99999999.99"))
    title = dice.choice(("NULL", "''", "'it''s'", "'Zoë \\ \"x\"'", f"'title {dice.random():.6f}'"))
    return dice.choice(
        (
            f"INSERT INTO item VALUES ({key}, {part}, {title}, {amount}, clock_timestamp(), true)"
            f" ON CONFLICT (part, id) DO UPDATE SET amount = {amount}, sold = clock_timestamp()",
            f"UPDATE item SET title = {title}, is_new = NULL WHERE id = {key}",
            f"UPDATE item SET amount = {amount} WHERE part = {part} AND id < {key // 4}",
            f"UPDATE item SET id = {key}, part = {part} WHERE id = {key + 1}",
            f"DELETE FROM item WHERE id = {key}",
            f"DELETE FROM item WHERE id BETWEEN {key} AND {key + 4} AND part = {part}",
            f"INSERT INTO item SELECT i, {part}, {title}, {amount}, now(), false FROM"
            f" generate_series({key}, {key} + 5) i ON CONFLICT DO NOTHING",
            f"INSERT INTO price VALUES ('{code}', {dice.random()!r}, '2026-02-01')"
            f" ON CONFLICT (code) DO UPDATE SET value = {dice.random()!r}, since = NULL",
            f"UPDATE price SET code = '{code}' WHERE code = 'code {dice.randrange(30)}'",
            f"UPDATE price SET value = 1.5e30 WHERE code = '{code}'",
            f"DELETE FROM price WHERE code = '{code}'",
            "TRUNCATE price"
            if dice.random() < 0.15
            else f"UPDATE price SET since = since + 1 WHERE code > '{code}'",
        )
    )


@dataclass(slots=True)
class Pgbench:
    """pgbench in a process of its own, which is started again when its server was down.

    Attributes:
        port: Of the server.
        database: Its database.
        user: Whose password is in `password`.
        password: For the environment of the process.
        folder: Where its script is.
        rate: Transactions a second.
        transactions: How many it says it made.
    """

    port: int
    database: str
    user: str
    password: str = field(repr=False)
    folder: Path
    rate: int = 30
    transactions: int = 0
    _leaving: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        (self.folder / "pgbench.sql").write_text(_PGBENCH)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()
        assert self._thread is not None  # it was started
        self._thread.join(30)

    def _run(self) -> None:
        while not self._leaving.is_set():
            self.transactions += pgbench(
                ["--file", str(self.folder / "pgbench.sql"), "--time", "2", "--rate", str(self.rate)],
                port=self.port,
                user=self.user,
                database=self.database,
                password=self.password,
            )
            self._leaving.wait(0.2)
