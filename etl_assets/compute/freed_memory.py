"""Freed memory, given back to the operating system.

Allocators keep what was freed, for each thread that used it. A process that stores one large batch after
another grows by that with every batch, although it holds nothing of them.
"""

from __future__ import annotations

import ctypes


def give_back_freed_memory() -> None:
    """Give back what Arrow's allocator and the C library keep and nobody uses. Takes milliseconds."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    # glibc only: other C libraries keep less, and have no such function.
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
