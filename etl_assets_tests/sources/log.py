"""Reading the log of a real PostgreSQL through the decoder, for tests.

Belongs here: a database with a slot, and its messages. Does not belong here: what tests expect.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg

from etl_assets.sources.postgres_cdc import messages as m
from etl_assets.sources.postgres_cdc.changed_rows import ChangedRows, ChangePlace, RowCollector
from etl_assets.sources.postgres_cdc.decoder import Decoder
from etl_assets.sources.postgres_cdc.relations import RelationCache
from etl_assets.sources.postgres_cdc.type_catalog import read_types
from etl_assets.sources.postgres_cdc.types import SESSION_SETTINGS, ValuePolicies
from etl_assets.stack.postgres import PostgresServer


@dataclass(slots=True)
class Log:
    """A database of its own with the publication `p` of all tables, read by the slot `slot`."""

    address: str
    session: psycopg.Connection
    slot: str
    decoder: Decoder = field(default_factory=Decoder)

    @classmethod
    def create(cls, server: PostgresServer) -> Log:
        name = f"l{uuid.uuid4().hex[:10]}"
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        session = psycopg.connect(server.database_url(name), autocommit=True)
        log = cls(server.database_url(name), session, f"slot_{name}")
        log.execute("CREATE PUBLICATION p FOR ALL TABLES")
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [log.slot])
        for setting, value in SESSION_SETTINGS.items():
            session.execute("SELECT set_config(%s, %s, false)", [setting, value])
        return log

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement.encode())

    def messages(self, protocol: int = 1, streaming: bool = False) -> Iterator[m.Message]:
        """Yield what has been logged since the last call."""
        options = ["proto_version", str(protocol), "publication_names", "p", "messages", "true"]
        options += ["streaming", "on"] if streaming else []
        wanted = ", ".join(["%s"] * len(options))
        query = f"SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, {wanted})"
        for (data,) in self.session.execute(query.encode(), [self.slot, *options]):
            yield self.decoder.decode(data)

    def changed_rows(self, keys: tuple[str, ...], policies: ValuePolicies | None = None) -> ChangedRows:
        """Return what has happened to the one table that was changed, by its newest columns."""
        found: RowCollector | None = None
        relations = RelationCache()
        lsn = sequence = at = 0
        for message in self.messages():
            sequence += 1
            match message:
                case m.BeginMessage():
                    lsn, sequence, at = message.commit_lsn, 0, message.committed_at
                case m.RelationMessage() if relations.remember(message, lsn):
                    found = RowCollector(message, keys)
                case m.InsertMessage():
                    _known(found).insert(message, ChangePlace(lsn=lsn, sequence=sequence, committed_at=at))
                case m.UpdateMessage():
                    _known(found).update(message, ChangePlace(lsn=lsn, sequence=sequence, committed_at=at))
                case m.DeleteMessage():
                    _known(found).delete(message, ChangePlace(lsn=lsn, sequence=sequence, committed_at=at))
                case m.TruncateMessage():
                    _known(found).truncate(ChangePlace(lsn=lsn, sequence=sequence, committed_at=at))
        found = _known(found)
        types = read_types(self.session, [each.type_oid for each in found.relation.columns])
        return found.collected(types, policies or ValuePolicies())

    def close(self) -> None:
        self.session.execute("SELECT pg_drop_replication_slot(%s)", [self.slot])
        self.session.close()


def _known(collector: RowCollector | None) -> RowCollector:
    assert collector is not None, "a change came before its relation"
    return collector
