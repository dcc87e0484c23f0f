"""The changes of `cdc_table`, which each side makes in its turn."""

from __future__ import annotations

_CHANGE = (
    "UPDATE sale SET amount = amount + 1, updated_at = updated_at + interval '30 days'"
    " WHERE sale_id %% %s = 0 AND sale_id BETWEEN %s AND %s"
)
"""The new times are after all others, so that an incremental query finds these rows and no others."""


def change(address: str, rows: int, every: int) -> None:
    """Update one row of so many, in transactions of about 1,000."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as session:
        session.execute("SET synchronous_commit = off")
        step = 1_000 * every
        for first in range(1, rows + 1, step):
            session.execute(_CHANGE, [every, first, first + step - 1])
        session.execute("CHECKPOINT")
