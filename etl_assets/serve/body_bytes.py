"""The memory of bodies that are being read, within `serve.max_waiting_bytes`.

A body is counted with what is expected of it, and with its own size once it is larger: how large a compressed
body is shows only while it is read.

Belongs here: counting. Does not belong here: reading (`request_body.py`), and records that wait for their
file (`group_commit.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from etl_assets.serve.problems import ProblemDetails


class BodyBytes:
    """The bytes of all bodies that are being read."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self.held = 0

    @property
    def is_full(self) -> bool:
        """Whether no other body may be read now."""
        return self.held >= self._max

    @contextmanager
    def reserve(self, expected: int) -> Generator[ReservedBytes]:
        """Count a body until the end of the block, at first with what is expected of it."""
        reservation = ReservedBytes(self)
        self.held += expected
        reservation.size = expected
        try:
            yield reservation
        finally:
            self.held -= reservation.size

    def grow(self, own: int, to: int) -> None:
        """Count a body that is larger than it was counted.

        Raises:
            ProblemDetails: the others take all the memory. Each body has room if there is no other, so that
                one of several goes on.
        """
        if self.held - own >= self._max:
            raise queue_full(closes=True)
        self.held += to - own


class ReservedBytes:
    """What is counted of one body."""

    def __init__(self, bodies: BodyBytes) -> None:
        self._bodies, self.size = bodies, 0

    def hold(self, size: int) -> None:
        """Count at least so many bytes.

        Raises:
            ProblemDetails: there is no room for them.
        """
        if size > self.size:
            self._bodies.grow(self.size, size)
            self.size = size


def queue_full(*, closes: bool = False) -> ProblemDetails:
    """Return the problem of a request that there is no room for.

    Args:
        closes: Whether a part of its body is not read, so that its connection is closed.
    """
    headers = {"Retry-After": "1"} | ({"Connection": "close"} if closes else {})
    return ProblemDetails(
        503, "queue-full", "too much waits to be stored; nothing was stored", headers=headers
    )
