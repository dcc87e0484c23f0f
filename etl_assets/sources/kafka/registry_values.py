"""Values in the wire format of a schema registry: a zero byte, the id of a schema, and the content.

A value that cannot be read is a dead letter with its original bytes. A registry that does not answer is the
source that does not answer: the step is repeated.

Belongs here: from a value to JSON or to the reason for rejecting it. Does not belong here: Avro itself
(`avro_values.py`), and requests (`registry.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from etl_assets.contracts import canonical_json
from etl_assets.contracts.canonical_json import Refused
from etl_assets.contracts.envelope import BadRecord
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.errors import SourceRefused
from etl_assets.sources.kafka.avro_values import UNREADABLE, LogicalTypes, SchemaUnusable, avro_decoder
from etl_assets.sources.kafka.registry import AVRO, JSON, RegisteredSchema

if TYPE_CHECKING:
    from etl_assets.sources.kafka.registry import RegistryClient

MAGIC = 0
HEADER_BYTES = 5
_MAX_REFERENCES, _MAX_DEPTH = 1_000, 50


class RegistryValues:
    """Decodes values. One instance serves one open source: schemas are kept.

    Args:
        client: The registry.
        is_avro: Whether values are Avro; otherwise JSON with a JSON Schema.
        logical_types: Returns how values of an Avro schema are changed, because of types that Avro does not
            know; None: they are not.
        decodes_keys: Whether keys are such values too.
    """

    def __init__(
        self,
        client: RegistryClient,
        *,
        is_avro: bool,
        logical_types: LogicalTypes | None = None,
        decodes_keys: bool = False,
    ) -> None:
        self._client, self._is_avro, self._logical_types = client, is_avro, logical_types
        self.decodes_keys = decodes_keys
        self._decoders: dict[int, Callable[[bytes], bytes]] = {}

    def decode(self, value: bytes) -> bytes | BadRecord:
        """Return the JSON text of a value, or why it is rejected, with its original bytes.

        Raises:
            SourceUnavailable, SourceRefused: the registry does not answer, or refuses the user.
        """
        if len(value) < HEADER_BYTES or value[0] != MAGIC:
            return _bad(
                value,
                "the value does not begin with a zero byte and the id of a schema, 5 bytes, as serializers"
                " with a schema registry write it",
            )
        schema_id = int.from_bytes(value[1:HEADER_BYTES], "big")
        if (decoder := self._decoders.get(schema_id)) is None:
            found = self._decoder(schema_id)
            if isinstance(found, str):
                return BadRecord(start=value, reason=DeadLetterReason.UNKNOWN_SCHEMA, error=found)
            decoder = self._decoders[schema_id] = found
        content = value[HEADER_BYTES:]
        try:
            return decoder(content)
        except Refused as refused:
            return BadRecord(start=value, reason=refused.reason, error=refused.error)
        except UNREADABLE as error:
            return _bad(
                value,
                f"its {len(content):,} bytes are no value of the schema {schema_id} ({type(error).__name__})",
            )

    def close(self) -> None:
        """Close connections to the registry."""
        self._client.close()

    def _decoder(self, schema_id: int) -> Callable[[bytes], bytes] | str:
        """Return what decodes values of a schema, or why none does."""
        if (schema := self._client.schema(schema_id)) is None:
            return f"the schema registry has no schema {schema_id}"
        wanted = AVRO if self._is_avro else JSON
        if schema.type != wanted:
            return f"the schema {schema_id} is of the type {schema.type}; the source's format needs {wanted}"
        if not self._is_avro:
            return _json
        try:
            return avro_decoder(schema.text, self._references(schema), self._logical_types)
        except SchemaUnusable as error:
            return f"the schema {schema_id} cannot be used: {error}"
        except ImportError as error:
            raise SourceRefused(
                "the package fastavro is missing",
                fix="pip install 'etl-assets[kafka]'",
                source=str(schema_id),
            ) from error

    def _references(self, schema: RegisteredSchema) -> list[str]:
        """Return the schemas that a schema refers to, each after those that it refers to itself.

        Raises:
            SchemaUnusable: one of them is not there, or there are too many.
        """
        found: dict[tuple[str, int], str] = {}
        self._collect(schema, found, depth=0)
        return list(found.values())

    def _collect(self, schema: RegisteredSchema, found: dict[tuple[str, int], str], depth: int) -> None:
        for each in schema.references:
            key = each.subject, each.version
            if key in found:
                continue
            if depth > _MAX_DEPTH or len(found) >= _MAX_REFERENCES:
                raise SchemaUnusable("its references have no end")
            if (other := self._client.referenced(each)) is None:
                raise SchemaUnusable(f"the registry does not have {each.subject} {each.version}")
            self._collect(other, found, depth + 1)
            found[key] = other.text


def _json(content: bytes) -> bytes:
    """Return a JSON text as it is.

    Raises:
        Refused: it is no JSON, or has no canonical form.
    """
    canonical_json.parse(content)
    return content


def _bad(value: bytes, error: str) -> BadRecord:
    return BadRecord(start=value, reason=DeadLetterReason.MALFORMED_VALUE, error=error)
