"""Chance, so that every kind of trouble comes before one comes twice; and what rots: one bit of a file."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeVar

T = TypeVar("T")


def dealt(cards: Sequence[T], dice: random.Random, *, times: int | None = None) -> Iterator[T]:
    """The cards in random order, over and over, or so many times: each once before one comes again."""
    for _ in count() if times is None else range(times):
        yield from dice.sample(cards, len(cards))


def with_a_flipped_bit(content: bytes, dice: random.Random) -> bytes:
    """The content with one bit of it the other way round."""
    at = dice.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :]
