"""The chain, a hash of a whole history: `chain(N) = sha256(chain(N-1) + bytes of N.json)`, in hexadecimal.

Two replicas with the same chain hold the same log entries, byte for byte, from version 0 on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

GENESIS = hashlib.sha256(b"").hexdigest()
"""The chain of a table without versions."""


def extend(chain: str, entry: bytes) -> str:
    """Return the chain after one more log entry."""
    return hashlib.sha256(bytes.fromhex(chain) + entry).hexdigest()


def extend_all(chain: str, entries: Iterable[bytes]) -> str:
    """Return the chain after several more log entries."""
    for entry in entries:
        chain = extend(chain, entry)
    return chain
