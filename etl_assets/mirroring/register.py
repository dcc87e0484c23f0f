"""One domain's register of one table, in that domain's store: read, and changed by conditional writes only.

One conditional write checks the epoch and moves the head. There is nothing in between for a paused process to fall into.
What may follow on what is decided in `record.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.record import Record
from etl_assets.mirroring.record_codec import decode, encode
from etl_assets.mirroring.stores import Store

REGISTERS = "register"
"""The folder of all registers under a root."""


@dataclass(frozen=True, slots=True)
class Held:
    """A record as it was read, and the tag to write against."""

    record: Record
    etag: str


class Register:
    """The register of a table under one root."""

    def __init__(self, store: Store, *, table: str, domain: str) -> None:
        self._store = store
        self._table = table
        self._domain = domain

    @property
    def key(self) -> str:
        return f"{REGISTERS}/{self._table}.json"

    def read(self) -> Held | None:
        """The record; None where there is none.

        Raises:
            ReplicaCorrupt: what is there is no register, or that of another table.
            Unanswered: the store did not answer.
        """
        found = self._store.get(self.key)
        if found is None:
            return None
        record = decode(found.content, domain=self._domain, key=self.key)
        if record.table != self._table:
            raise ReplicaCorrupt(
                f"the register {self.key} in {self._domain} is that of the table {record.table}",
                fix="give each platform and each table a root of its own; nothing was changed",
                table=self._table,
                domain=self._domain,
            )
        return Held(record, found.etag)

    def expect_own(self) -> None:
        """Refuse the register of another table; one that cannot be read at all may be this one's.

        Raises:
            ReplicaCorrupt: it is that of another table.
            Unanswered: the store did not answer.
        """
        if self._unreadable() is None:
            self.read()

    def remake(self, record: Record) -> bool:
        """Replace what is there and cannot be read; False if it can be, or changes at this moment.

        To be asked for by an operator only: a newer release may be able to read it.

        Raises:
            Unanswered: it may have been done, or may be done later.
        """
        etag = self._unreadable()
        return etag is not None and self._store.replace(self.key, encode(record), etag)

    def _unreadable(self) -> str | None:
        """The tag of content that is no register; None if there is none, or if it is one."""
        found = self._store.get(self.key)
        if found is None:
            return None
        try:
            decode(found.content, domain=self._domain, key=self.key)
        except ReplicaCorrupt:
            return found.etag
        return None

    def create(self, record: Record) -> bool:
        """Write the first record; False if there is one already, whatever it says."""
        return self._store.create(self.key, encode(record))

    def swap(self, held: Held, record: Record) -> bool:
        """Replace the record that was read, once. True says that this very call did it.

        Raises:
            Unanswered: it may have been done, or may be done later.
        """
        return self._store.replace(self.key, encode(record), held.etag)

    def write(self, held: Held, record: Record) -> bool:
        """Replace the record that was read; True if the register now holds `record`, whoever wrote it.

        An answer that did not arrive is looked up. False: the register holds something else, read it and decide again.

        Raises:
            Unanswered: it may have been done, or may be done later.
        """
        if record == held.record:
            return True
        try:
            return self.swap(held, record)
        except Unanswered:
            now = self.read()
            return now is not None and now.record == record
