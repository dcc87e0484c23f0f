"""Check of a store's conditional writes: of two conflicting writes the store must refuse one.

The whole protocol rests on this.
Some servers with S3's interface accept `If-None-Match` and `If-Match`, and write all the same. With such a
server two leaders would both win unnoticed. So a bucket is checked before it is used for the first time.
"""

from __future__ import annotations

import uuid

from etl_assets.mirroring.stores.store import Store

FOLDER = "health"


def broken_promise(store: Store) -> str | None:
    """Try writes that a store must refuse. Leaves nothing behind.

    Returns:
        What the store did wrong; None if its conditional writes work.

    Raises:
        Unanswered: the store did not answer.
    """
    key = f"{FOLDER}/{uuid.uuid4().hex}"
    try:
        store.create(key, b"first")
        if store.create(key, b"second") or _content(store, key) != b"first":
            return "its store writes over an object when asked to write only where none is (If-None-Match)"
        first = store.get(key)
        tag = "" if first is None else first.etag
        # If an answer does not arrive the library repeats the write, which is then refused: compare the
        # content.
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
