"""Records as JSON: exactly the fields there are, each of its kind, or the register counts as corrupt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from etl_assets.errors import ReplicaCorrupt
from etl_assets.mirroring.epochs import Epoch
from etl_assets.mirroring.locator import Locator, Replica, Role
from etl_assets.mirroring.record import WHOLE_LOG, Base, Published, Record, State

FORMAT, FORMAT_WITH_BASE = 1, 2
"""A register whose log begins with version 0 is written as by programs that know no other."""
T = TypeVar("T")


def encode(record: Record) -> bytes:
    """The register's content. Equal records give equal bytes."""
    accepted, published = record.accepted, record.published
    document = {
        "format": FORMAT if accepted is None or accepted.base == WHOLE_LOG else FORMAT_WITH_BASE,
        "table": record.table,
        "incarnation": record.incarnation,
        "promised": _epoch_document(record.promised),
        "accepted": None if accepted is None else _state_document(accepted),
        "published": {
            "version": published.version,
            "chain": published.chain,
            "folder": published.folder,
        },
    }
    return json.dumps(document, separators=(",", ":")).encode()


@lru_cache(maxsize=4096)
def decode(content: bytes, *, domain: str, key: str) -> Record:
    """Read a register.

    Args:
        content: What it holds.
        domain: The domain it is in.
        key: Its key there.

    Raises:
        ReplicaCorrupt: the content is not a register of this format.
    """
    try:
        return _record(json.loads(content))
    except (ValueError, KeyError, TypeError) as error:
        raise ReplicaCorrupt(
            f"the register {domain}: {key} cannot be read ({error})",
            fix="do not edit registers; `etl-assets tables repair` makes it anew",
            domain=domain,
        ) from error


def _record(document: Any) -> Record:
    fields = _fields(document, "format", "table", "incarnation", "promised", "accepted", "published")
    if fields["format"] not in (FORMAT, FORMAT_WITH_BASE):
        raise ValueError(f"its format is {fields['format']!r}, this program reads up to {FORMAT_WITH_BASE}")
    with_base = fields["format"] == FORMAT_WITH_BASE
    published = _fields(fields["published"], "version", "chain", "folder")
    return Record(
        table=_of(str, fields["table"]),
        incarnation=_of(str, fields["incarnation"]),
        promised=_epoch(fields["promised"]),
        accepted=None if fields["accepted"] is None else _state(fields["accepted"], with_base=with_base),
        published=Published(
            version=_of(int, published["version"]),
            chain=_chain(published["chain"]),
            folder=_of(int, published["folder"]),
        ),
    )


def _state_document(state: State) -> dict[str, Any]:
    return {
        "epoch": _epoch_document(state.epoch),
        "version": state.version,
        "chain": state.chain,
        "generation": state.locator.generation,
        "one_copy": state.locator.one_copy,
        "replicas": [
            {
                "domain": replica.domain,
                "uri": replica.uri,
                "role": replica.role.value,
                "incarnation": replica.incarnation,
            }
            for replica in state.locator.replicas
        ],
        **({} if state.base == WHOLE_LOG else {"base": _base_document(state.base)}),
    }


def _state(document: Any, *, with_base: bool) -> State:
    names = ("epoch", "version", "chain", "generation", "one_copy", "replicas")
    fields = _fields(document, *names, *(["base"] if with_base else []))
    return State(
        epoch=_epoch(fields["epoch"]),
        version=_of(int, fields["version"]),
        chain=_chain(fields["chain"]),
        locator=Locator(
            generation=_of(int, fields["generation"]),
            one_copy=_of(bool, fields["one_copy"]),
            replicas=tuple(_replica(replica) for replica in _of(list, fields["replicas"])),
        ),
        base=_base(fields["base"]) if with_base else WHOLE_LOG,
    )


def _base_document(base: Base) -> dict[str, Any]:
    return {"first": base.first, "before": base.before, "checkpoint": base.checkpoint}


def _base(document: Any) -> Base:
    fields = _fields(document, "first", "before", "checkpoint")
    base = Base(
        first=_of(int, fields["first"]),
        before=_chain(fields["before"]),
        checkpoint=_chain(fields["checkpoint"]),
    )
    if base.first < 1:
        raise ValueError(f"its log begins with version {base.first}")
    return base


def _replica(document: Any) -> Replica:
    fields = _fields(document, "domain", "uri", "role", "incarnation")
    return Replica(
        domain=_of(str, fields["domain"]),
        uri=_of(str, fields["uri"]),
        role=Role(fields["role"]),
        incarnation=_of(str, fields["incarnation"]),
    )


def _epoch_document(epoch: Epoch) -> dict[str, Any]:
    return {"number": epoch.number, "domain": epoch.domain}


def _epoch(document: Any) -> Epoch:
    fields = _fields(document, "number", "domain")
    return Epoch(_of(int, fields["number"]), _of(str, fields["domain"]))


def _chain(value: Any) -> str:
    if len(bytes.fromhex(_of(str, value))) != 32:
        raise ValueError(f"{value!r} is no SHA-256")
    return value


def _fields(document: Any, *names: str) -> Mapping[str, Any]:
    if sorted(_of(dict, document)) != sorted(names):
        raise ValueError(f"it has the fields {sorted(document)}, not {sorted(names)}")
    return document


def _of(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
