"""Whether a store keeps the promise that everything rests on: of two conditional writes one is refused.

Some servers that speak S3's language take `If-None-Match` and `If-Match`, and write all the same. Two leaders would both win
there, and nobody would notice. So a bucket is asked before it is used for the first time.
"""

from __future__ import annotations

import uuid

from etl_assets.mirroring.stores import Store

FOLDER = "health"


def broken_promise(store: Store) -> str | None:
    """Ask a store for what it must refuse; what it did all the same, None if it refused. Leaves nothing behind.

    Raises:
        Unanswered: it did not answer.
    """
    key = f"{FOLDER}/{uuid.uuid4().hex}"
    try:
        store.create(key, b"first")
        if store.create(key, b"second") or _content(store, key) != b"first":
            return "its store writes over an object when asked to write only where none is (If-None-Match)"
        first = store.get(key)
        tag = "" if first is None else first.etag
        # An answer that the library waited for in vain makes the repetition a refusal: the content tells.
        if not store.replace(key, b"third", tag) and _content(store, key) != b"third":
            return "its store does not replace an object that is as it was read (If-Match)"
        if store.replace(key, b"fourth", tag) or _content(store, key) != b"third":
            return "its store replaces an object that is not as it was read any more (If-Match)"
    finally:
        store.delete(key)
    return None


def _content(store: Store, key: str) -> bytes | None:
    found = store.get(key)
    return None if found is None else found.content
