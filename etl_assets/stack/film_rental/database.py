"""The sample's database: its schema, and rows that depend on a seed only.

Belongs here: making and filling the tables. Does not belong here: the server (`stack/postgres.py`), and the
pipelines.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from etl_assets.errors import RuntimeMissing

if TYPE_CHECKING:
    import psycopg

SCHEMA = "film_rental"
RENTALS = 16_000
SEED = 16
_FILMS_PER_RENTAL, _CUSTOMERS_PER_RENTAL, _COPIES_PER_FILM = 16, 27, 4
_BEGINNING = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
_DAYS = 365
_CATEGORIES = (
    *("action", "animation", "comedy", "documentary", "drama", "family", "horror", "music", "mystery"),
    *("nature", "science fiction", "travel"),
)
_COUNTRIES = ("AT", "BR", "CZ", "DE", "ES", "FR", "IN", "JP", "KE", "MX", "NO", "PL", "US", "ZA")
_FIRST = (
    *("Amber", "Broken", "Crimson", "Distant", "Electric", "Forgotten", "Golden", "Hidden", "Iron"),
    "Jade",
)
_SECOND = (
    *("Bridge", "Comet", "Dance", "Engine", "Forest", "Harbour", "Island", "Lantern", "Mountain"),
    "River",
)
_THIRD = ("of Ashes", "at Dawn", "in Winter", "Without End", "by Night", "of Glass", "Returns", "in Colour")
_TABLES = f"""
CREATE SCHEMA {SCHEMA};
CREATE TABLE {SCHEMA}.film (
    film_id integer PRIMARY KEY,
    title text NOT NULL,
    category text NOT NULL,
    rental_rate numeric(4, 2) NOT NULL,
    length_minutes integer NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE TABLE {SCHEMA}.customer (
    customer_id integer PRIMARY KEY,
    country text NOT NULL,
    is_active boolean NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE TABLE {SCHEMA}.inventory (
    inventory_id integer PRIMARY KEY,
    film_id integer NOT NULL REFERENCES {SCHEMA}.film,
    store_id integer NOT NULL
);
CREATE TABLE {SCHEMA}.rental (
    rental_id integer PRIMARY KEY,
    inventory_id integer NOT NULL REFERENCES {SCHEMA}.inventory,
    customer_id integer NOT NULL REFERENCES {SCHEMA}.customer,
    rented_at timestamptz NOT NULL,
    returned_at timestamptz,
    updated_at timestamptz NOT NULL
);
CREATE TABLE {SCHEMA}.payment (
    payment_id integer PRIMARY KEY,
    rental_id integer NOT NULL REFERENCES {SCHEMA}.rental ON DELETE CASCADE,
    amount numeric(5, 2) NOT NULL,
    paid_at timestamptz NOT NULL
);
CREATE TABLE {SCHEMA}.film_rating (
    rental_id integer PRIMARY KEY REFERENCES {SCHEMA}.rental ON DELETE CASCADE,
    stars integer NOT NULL CHECK (stars BETWEEN 1 AND 5),
    rated_at timestamptz NOT NULL
);
"""
_INDEXES = f"""
CREATE INDEX ON {SCHEMA}.rental (updated_at, rental_id);
CREATE INDEX ON {SCHEMA}.rental (inventory_id);
CREATE INDEX ON {SCHEMA}.inventory (film_id);
ANALYZE;
"""
_Rows = Iterator[tuple[Any, ...]]


def load_film_rental(address: str, *, rentals: int = RENTALS, seed: int = SEED) -> dict[str, int]:
    """Make the schema `film_rental` in a database and fill it, in one transaction.

    Where the schema is there already nothing is changed.

    Args:
        address: libpq's connection string or URL of the database, as `PostgresServer.database_url` returns.
        rentals: Number of rentals; that of the other rows follows from it.
        seed: Rows depend on this and `rentals` only.

    Returns:
        The number of rows by table.
    """
    try:
        import psycopg
    except ImportError as error:
        raise RuntimeMissing(
            "the package psycopg is not installed, which the film-rental sample is loaded by",
            fix="pip install 'etl-assets[postgres]'",
        ) from error
    with psycopg.connect(address) as connection:
        # Two at once: the second waits, and finds the schema.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (SCHEMA,))
        there = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", (SCHEMA,)).fetchone()
        if there == (False,):
            connection.execute(_TABLES.encode())
            for table, make in _ROWS.items():
                _copy(connection, table, make(Random(f"{seed}/{table}"), rentals))
            connection.execute(_INDEXES.encode())
        return {table: _count(connection, table) for table in _ROWS}


def _copy(connection: psycopg.Connection, table: str, rows: _Rows) -> None:
    statement = f"COPY {SCHEMA}.{table} FROM STDIN".encode()
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def _count(connection: psycopg.Connection, table: str) -> int:
    found = connection.execute(f"SELECT count(*) FROM {SCHEMA}.{table}".encode()).fetchone()
    assert found is not None  # an aggregate has one row
    return found[0]


def _below(random: Random, number: int) -> int:
    """Return a number from 0 on; `random()` alone is the same in all versions of Python."""
    return int(random.random() * number)


def _films(rentals: int) -> int:
    return max(1, rentals // _FILMS_PER_RENTAL)


def _customers(rentals: int) -> int:
    return max(1, rentals // _CUSTOMERS_PER_RENTAL)


def _film_rows(random: Random, rentals: int) -> _Rows:
    for number in range(_films(rentals)):
        parts = (number // 80 % 10, number // 8 % 10, number % 8)
        title = f"{_FIRST[parts[0]]} {_SECOND[parts[1]]} {_THIRD[parts[2]]}"
        sequel = number // 800
        yield (
            number + 1,
            f"{title} {sequel + 1}" if sequel else title,
            _CATEGORIES[_below(random, len(_CATEGORIES))],
            f"{_below(random, 4) + 1}.99",
            70 + _below(random, 90),
            _BEGINNING,
        )


def _customer_rows(random: Random, rentals: int) -> _Rows:
    for number in range(_customers(rentals)):
        country = _COUNTRIES[_below(random, len(_COUNTRIES))]
        yield number + 1, country, _below(random, 10) > 0, _BEGINNING


def _inventory_rows(random: Random, rentals: int) -> _Rows:
    for number in range(_films(rentals) * _COPIES_PER_FILM):
        yield number + 1, number // _COPIES_PER_FILM + 1, _below(random, 3) + 1


def _rental_rows(random: Random, rentals: int) -> _Rows:
    for number in range(rentals):
        rented = _rented_at(number, rentals)
        returned = rented + dt.timedelta(hours=12 + _below(random, 240))
        is_out = _below(random, 100) == 0
        yield (
            number + 1,
            _below(random, _films(rentals) * _COPIES_PER_FILM) + 1,
            _below(random, _customers(rentals)) + 1,
            rented,
            None if is_out else returned,
            rented if is_out else returned,
        )


def _payment_rows(random: Random, rentals: int) -> _Rows:
    for number in range(rentals):
        amount = f"{_below(random, 4) + 1 + 2 * (_below(random, 8) == 0)}.99"
        yield number + 1, number + 1, amount, _rented_at(number, rentals)


def _rating_rows(random: Random, rentals: int) -> _Rows:
    for number in range(rentals):
        if _below(random, 2):
            stars = min(5, 1 + _below(random, 3) + _below(random, 4))
            yield number + 1, stars, _rented_at(number, rentals) + dt.timedelta(days=1)


def _rented_at(number: int, rentals: int) -> dt.datetime:
    return _BEGINNING + dt.timedelta(seconds=number * _DAYS * 86_400 // rentals)


_ROWS: dict[str, Callable[[Random, int], _Rows]] = {
    "film": _film_rows,
    "customer": _customer_rows,
    "inventory": _inventory_rows,
    "rental": _rental_rows,
    "payment": _payment_rows,
    "film_rating": _rating_rows,
}
"""The tables, those that others refer to first."""
