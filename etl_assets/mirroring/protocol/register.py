"""One domain's register of one table, in that domain's store. It is changed by conditional writes only.

One conditional write checks the epoch and moves the head in a single step, so a process cannot be paused in
between. The rules for which record may follow on which are in `record.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.record import Record
from etl_assets.mirroring.protocol.record_codec import decode, encode
from etl_assets.mirroring.stores.store import Store

REGISTERS = "register"
"""Name of the folder that holds all registers under a root."""


@dataclass(frozen=True, slots=True)
class Held:
    """A record as it was read, and the tag for a conditional write."""

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
        """Read the record; None if the register does not exist.

        Raises:
            ReplicaCorrupt: the content is not a register, or is that of another table.
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
        """Refuse the register of another table. One that cannot be parsed passes, as it may be this table's.

        Raises:
            ReplicaCorrupt: the register is that of another table.
            Unanswered: the store did not answer.
        """
        if self._unreadable() is None:
            self.read()

    def remake(self, record: Record) -> bool:
        """Replace a register that cannot be parsed.

        Call this only on an operator's request: a newer release may be able to read the register.

        Returns:
            False if the register can be parsed or does not exist, or if it has just changed.

        Raises:
            Unanswered: the write may have been done, or may be done later.
        """
        etag = self._unreadable()
        return etag is not None and self._store.replace(self.key, encode(record), etag)

    def _unreadable(self) -> str | None:
        """Return the tag of content that is not a register; None if it is one, or if there is none."""
        found = self._store.get(self.key)
        if found is None:
            return None
        try:
            decode(found.content, domain=self._domain, key=self.key)
        except ReplicaCorrupt:
            return found.etag
        return None

    def create(self, record: Record) -> bool:
        """Write the first record; return False if there is a register already, whatever its content."""
        return self._store.create(self.key, encode(record))

    def swap(self, held: Held, record: Record) -> bool:
        """Replace the record that was read; return True only if this call did it.

        Raises:
            Unanswered: the write may have been done, or may be done later.
        """
        return self._store.replace(self.key, encode(record), held.etag)

    def write(self, held: Held, record: Record) -> bool:
        """Replace the record that was read, and read the register again if the answer does not arrive.

        Returns:
            True if the register now holds `record`, whichever process wrote it. False if it may hold
            something else: read it and decide again.

        Raises:
            Unanswered: the write may have been done, or may be done later.
        """
        if record == held.record:
            return True
        try:
            return self.swap(held, record)
        except Unanswered:
            now = self.read()
            return now is not None and now.record == record
