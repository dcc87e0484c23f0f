"""A transaction that a table takes up in several parts, because it has more than `max_transaction_records`.

Belongs here: how far a table is within such a transaction, as a value. Does not belong here: which changes a
part has (`table_changes.py`, `captures/spooled_changes.py`), and what commits say of it
(`delta/log/log_places.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etl_assets.delta.log.log_places import FACT, LogPlace
from etl_assets.sources.postgres_cdc.lsn import lsn_text, parse_lsn


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPart:
    """How far a table is within a transaction.

    Attributes:
        commit_lsn: Place of the transaction's commit in the log.
        sequence: The table has the changes with lower numbers in the transaction, which are the same
            however often it is read.
        number: Number of the parts that the table has.
    """

    commit_lsn: int
    sequence: int
    number: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "commit_lsn": lsn_text(self.commit_lsn),
            "sequence": self.sequence,
            "number": self.number,
        }

    @staticmethod
    def of(found: Mapping[str, Any] | None) -> TransactionPart | None:
        """Return it of its JSON."""
        if found is None:
            return None
        return TransactionPart(
            commit_lsn=parse_lsn(found["commit_lsn"]), sequence=found["sequence"], number=found["number"]
        )


def log_facts(lsn: int, before: TransactionPart | None, after: TransactionPart | None) -> dict[str, Any]:
    """Return what the commit of a range says of its place in the log.

    Args:
        lsn: End of the last whole transaction that the table has then.
        before: How far the table was within a transaction.
        after: How far it is then.
    """
    place = LogPlace(lsn=lsn_text(lsn))
    if after is not None:
        place = LogPlace(lsn=lsn_text(lsn), transaction=lsn_text(after.commit_lsn), part=after.number)
    elif before is not None:
        place = LogPlace(
            lsn=lsn_text(lsn), transaction=lsn_text(before.commit_lsn), part=before.number + 1, is_last=True
        )
    return {FACT: place.as_json()}
