"""Codec of records as JSON. A register without exactly the known fields and types counts as corrupt.

The last field is a checksum of everything before it. So a register with a flipped bit cannot be read and does
not count; it never passes for other content. Registers from before checksums (formats 1 and 2) can be read,
and get one with the next write.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from etl_assets.errors import ReplicaCorrupt
from etl_assets.mirroring.protocol.epochs import Epoch
from etl_assets.mirroring.protocol.locator import Locator, ReplicaConfig, Role
from etl_assets.mirroring.protocol.record import WHOLE_LOG, Base, Published, Record, State

FORMAT = 3
FORMATS_WITHOUT_CHECKSUM = (1, 2)
"""Format 2 is that of a log that does not begin with version 0."""
_CHECKSUM = re.compile(rb',"sha256":"([0-9a-f]{64})"}')
_CHECKSUM_BYTES = len(',"sha256":""}') + 64
T = TypeVar("T")


def encode(record: Record) -> bytes:
    """Return the register's content. Equal records give equal bytes."""
    accepted, published = record.accepted, record.published
    document = {
        "format": FORMAT,
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
    return sealed(document)


def sealed(document: Mapping[str, Any]) -> bytes:
    """Return a document as JSON, with the checksum of its bytes as the last field."""
    body = json.dumps(document, separators=(",", ":")).encode().removesuffix(b"}")
    return body + f',"sha256":"{hashlib.sha256(body).hexdigest()}"}}'.encode()


@lru_cache(maxsize=4096)
def decode(content: bytes, *, domain: str, key: str) -> Record:
    """Parse a register.

    Args:
        content: The register's content.
        domain: The register's domain, for the error.
        key: The register's key, for the error.

    Raises:
        ReplicaCorrupt: the content is not a register, is of a newer format, or does not fit its checksum.
    """
    try:
        document = json.loads(content)
        return _record(document, has_checksum=_has_checksum(document, content))
    except (ValueError, KeyError, TypeError) as error:
        raise ReplicaCorrupt(
            f"the register {domain}: {key} cannot be read ({error})",
            fix="do not edit registers; `etl-assets tables repair` rebuilds it",
            domain=domain,
        ) from error


def _has_checksum(document: Any, content: bytes) -> bool:
    """Return whether a register is of a format with a checksum.

    Raises:
        ValueError: the checksum does not fit the content, or the format is unknown.
    """
    form = _of(dict, document).get("format")
    if "sha256" not in document and form in FORMATS_WITHOUT_CHECKSUM:
        return False
    body, checksum = content[:-_CHECKSUM_BYTES], _CHECKSUM.fullmatch(content[-_CHECKSUM_BYTES:])
    if checksum is None or hashlib.sha256(body).hexdigest().encode() != checksum[1]:
        if form not in (*FORMATS_WITHOUT_CHECKSUM, FORMAT) and "sha256" not in document:
            raise ValueError(f"its format is {form!r}, this program reads up to {FORMAT}")
        raise ValueError("its checksum does not fit: it was edited, or its disk changed it")
    return True


def _record(document: Any, *, has_checksum: bool) -> Record:
    names = ("format", "table", "incarnation", "promised", "accepted", "published")
    fields = _fields(document, *names, *(["sha256"] if has_checksum else []))
    if has_checksum and fields["format"] != FORMAT:
        raise ValueError(f"its format is {fields['format']!r}, this program reads up to {FORMAT}")
    accepted = fields["accepted"]
    if has_checksum:
        with_base = accepted is not None and "base" in _of(dict, accepted)
    else:
        with_base = fields["format"] == FORMATS_WITHOUT_CHECKSUM[-1]
    published = _fields(fields["published"], "version", "chain", "folder")
    return Record(
        table=_of(str, fields["table"]),
        incarnation=_of(str, fields["incarnation"]),
        promised=_epoch(fields["promised"]),
        accepted=None if accepted is None else _state(accepted, with_base=with_base),
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


def _replica(document: Any) -> ReplicaConfig:
    fields = _fields(document, "domain", "uri", "role", "incarnation")
    return ReplicaConfig(
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
