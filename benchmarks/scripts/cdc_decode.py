"""The messages of a slot: read into memory, decoded, and decoded again into Arrow columns."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments

READ, DECODED, COLLECTED = "read", "decoded", "collected"
_ROWS_PER_BATCH = 50_000


def read(address: str, slot: str, publication: str) -> list[bytes]:
    """Return the messages of a slot, which keeps them."""
    import psycopg

    from etl_assets.sources.postgres_cdc.types import SESSION_SETTINGS

    query = (
        "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
        " 'publication_names', %s)"
    )
    with psycopg.connect(address, autocommit=True) as session:
        for setting, value in SESSION_SETTINGS.items():
            session.execute("SELECT set_config(%s, %s, false)", [setting, value])
        return [data for (data,) in session.cursor(binary=True).execute(query, [slot, publication])]


def decode(messages: Sequence[bytes]) -> int:
    """Decode messages alone, and return how many there are."""
    from etl_assets.sources.postgres_cdc.decoder import Decoder

    decode_one = Decoder().decode
    for data in messages:
        decode_one(data)
    return len(messages)


def collect(messages: Sequence[bytes]) -> int:
    """Decode messages into Arrow columns, and return the number of rows."""
    from etl_assets.sources.postgres_cdc import messages as m
    from etl_assets.sources.postgres_cdc.changed_rows import ChangePlace, RowCollector
    from etl_assets.sources.postgres_cdc.decoder import Decoder
    from etl_assets.sources.postgres_cdc.types import BUILT_IN_TYPES, ValuePolicies

    decoder, policies = Decoder(), ValuePolicies()
    collector: RowCollector | None = None
    rows = lsn = sequence = at = 0
    for data in messages:
        message = decoder.decode(data)
        match message:
            case m.UpdateMessage() if collector is not None:
                sequence += 1
                collector.update(message, ChangePlace(lsn=lsn, sequence=sequence, committed_at=at))
                if len(collector) >= _ROWS_PER_BATCH:
                    rows += collector.collected(BUILT_IN_TYPES, policies).rows.num_rows
                    collector = RowCollector(collector.relation, ("sale_id",))
            case m.BeginMessage():
                lsn, sequence, at = message.commit_lsn, 0, message.committed_at
            case m.RelationMessage() if collector is None:
                collector = RowCollector(message, ("sale_id",))
    if collector is not None:
        rows += collector.collected(BUILT_IN_TYPES, policies).rows.num_rows
    return rows


def main() -> None:
    """Read, decode, collect."""
    began = time.monotonic()
    messages = read(**arguments())
    mark(READ, seconds=time.monotonic() - began)
    mark(DECODED, messages=decode(messages))
    mark(COLLECTED, rows=collect(messages))


if __name__ == "__main__":
    main()
