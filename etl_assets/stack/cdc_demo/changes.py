"""Changes of the shop's database, as the shop's own program would make them while a capture follows.

Belongs here: the transactions. They have every kind of change: inserts, updates, deletes (with the rows that
refer to them), changed keys, a table that is emptied and filled again, and transactions that are rolled back.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from etl_assets.stack.cdc_demo.shop import STORES
from etl_assets.stack.film_rental.database import SCHEMA

if TYPE_CHECKING:
    import psycopg

_REFILLED = STORES[-1]
_REFILL_EVERY = 97
_REFILL = "refill"
ROLLED_BACK = "rolled back"


class ShopChanges:
    """A program that changes the shop's database in a thread of its own.

    Args:
        url: The database.
        seed: What changes are made depends on this alone, and on what is in the database.
    """

    def __init__(self, url: str, seed: int) -> None:
        self._url, self._random = url, Random(seed)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.made: Counter[str] = Counter()
        self.error: Exception | None = None

    def start(self, *, most: int | None = None, pause_seconds: float = 0.0) -> None:
        """Begin to make changes, until `stop`, or until so many transactions were made."""
        self._thread = threading.Thread(target=self._run, args=(most, pause_seconds), daemon=True)
        self._thread.start()

    @property
    def are_made(self) -> bool:
        """Whether no more changes come."""
        return self._thread is None or not self._thread.is_alive()

    def stop(self) -> None:
        """End after the transaction that is under way.

        Raises:
            psycopg.Error: what ended the changes before.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self, most: int | None, pause_seconds: float) -> None:
        import psycopg

        try:
            with psycopg.connect(self._url, autocommit=True) as session:
                number = 0
                while not self._stop.wait(pause_seconds) and (most is None or number < most):
                    number += 1
                    self._transaction(session, number)
        except psycopg.Error as error:
            self.error = error

    def _transaction(self, session: psycopg.Connection, number: int) -> None:
        name = _REFILL if number % _REFILL_EVERY == 0 else self._random.choice(tuple(_CHANGES))
        change = _refill if name == _REFILL else _CHANGES[name]
        if self._random.random() < 0.1:
            with session.transaction(force_rollback=True):
                change(session, self._random)
            self.made[ROLLED_BACK] += 1
            return
        with session.transaction():
            change(session, self._random)
        self.made[name] += 1


def _rent(session: psycopg.Connection, random: Random) -> None:
    session.execute(
        f"WITH rented AS (INSERT INTO {SCHEMA}.rental (rental_id, inventory_id, customer_id, rented_at,"
        f" updated_at) SELECT max(rental_id) + 1, %s, %s, now(), now() FROM {SCHEMA}.rental"
        " RETURNING rental_id)"
        f" INSERT INTO {SCHEMA}.payment SELECT (SELECT max(payment_id) + 1 FROM {SCHEMA}.payment), rental_id,"
        " 2.99, now() FROM rented".encode(),
        [random.randint(1, 4_000), random.randint(1, 590)],
    )


def _bring_back(session: psycopg.Connection, random: Random) -> None:
    session.execute(
        f"UPDATE {SCHEMA}.rental SET returned_at = now(), updated_at = now()"
        " WHERE rental_id %% 400 = %s".encode(),
        [random.randrange(400)],
    )


def _rate(session: psycopg.Connection, random: Random) -> None:
    session.execute(
        f"INSERT INTO {SCHEMA}.film_rating SELECT rental_id, %s, now() FROM {SCHEMA}.rental"
        " WHERE rental_id %% 800 = %s ON CONFLICT (rental_id) DO UPDATE SET stars = excluded.stars,"
        " rated_at = excluded.rated_at".encode(),
        [random.randint(1, 5), random.randrange(800)],
    )


def _forget_rental(session: psycopg.Connection, random: Random) -> None:
    session.execute(f"DELETE FROM {SCHEMA}.rental WHERE rental_id = %s".encode(), [random.randint(1, 16_000)])


def _price_films(session: psycopg.Connection, random: Random) -> None:
    session.execute(
        f"UPDATE {SCHEMA}.film SET rental_rate = %s, updated_at = now() WHERE film_id %% 100 = %s".encode(),
        [f"{random.randint(1, 6)}.49", random.randrange(100)],
    )


def _move_customer(session: psycopg.Connection, random: Random) -> None:
    session.execute(
        f"UPDATE {SCHEMA}.customer SET country = %s, updated_at = now() WHERE customer_id = %s".encode(),
        [random.choice(("AT", "JP", "KE")), random.randint(1, 590)],
    )


def _count_stock(session: psycopg.Connection, random: Random) -> None:
    session.execute(
        f"UPDATE {random.choice(STORES)} SET copies = copies + %s, counted_at = now()"
        " WHERE item_id %% 20 = %s".encode(),
        [random.randint(-2, 4), random.randrange(20)],
    )


def _renumber_stock(session: psycopg.Connection, random: Random) -> None:
    """Give a row another key: a delete and an insert, for a table that is kept by keys."""
    session.execute(
        f"UPDATE {random.choice(STORES)} SET item_id = item_id + 100000 WHERE item_id = %s".encode(),
        [random.randint(1, 400)],
    )


def _refill(session: psycopg.Connection, random: Random) -> None:
    """Empty a table and fill it again, in one transaction."""
    session.execute(f"TRUNCATE {_REFILLED}".encode())
    session.execute(
        f"INSERT INTO {_REFILLED} SELECT i, i, %s, 9.99, NULL, now()"
        " FROM generate_series(1, 300) AS i".encode(),
        [random.randint(1, 9)],
    )


_CHANGES: Mapping[str, Callable[[psycopg.Connection, Random], None]] = {
    "rent": _rent,
    "bring back": _bring_back,
    "rate": _rate,
    "forget a rental": _forget_rental,
    "price films": _price_films,
    "move a customer": _move_customer,
    "count stock": _count_stock,
    "renumber stock": _renumber_stock,
}
