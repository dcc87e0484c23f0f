"""The client of a Confluent-compatible schema registry: schemas by id, kept once they are known.

Belongs here: requests and answers. Does not belong here: what a schema says of a value
(`registry_values.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from etl_assets.errors import SourceRefused, SourceUnavailable

if TYPE_CHECKING:
    import urllib3

AVRO, JSON = "AVRO", "JSON"
MAX_ANSWER_BYTES = 16 << 20
UNKNOWN_SECONDS = 30.0
"""How long an id that the registry does not know is not asked for again."""
_UNKNOWN_CODES = (40401, 40402, 40403)
_PASSING = (408, 425, 429)
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.2
_MEDIA_TYPES = "application/vnd.schemaregistry.v1+json, application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A schema that another one refers to."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema of the registry.

    Attributes:
        type: `AVRO`, `JSON` or another type of the registry.
        text: The schema.
        references: Schemas that it refers to.
    """

    type: str
    text: str
    references: tuple[Reference, ...] = ()


class RegistryClient:
    """Reads schemas. One of an id never changes, so that it is asked for once.

    Args:
        url: Address of the registry.
        user: User for basic authentication.
        password: Its password. It is in no message.
        ca_file: File of certificates that sign the server's; by default those of the system.
        timeout_seconds: How long a request may take.
        topic: The topic that is read, for messages.

    Raises, from every request:
        SourceUnavailable: the registry does not answer now.
        SourceRefused: it refuses the user, or is no registry.
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
        timeout_seconds: float = 10.0,
        topic: str = "",
    ) -> None:
        self._url, self._topic = url.rstrip("/"), topic
        self._user, self._password = user, password
        self._ca_file, self._timeout_seconds = ca_file, timeout_seconds
        self._pool: urllib3.PoolManager | None = None
        self._schemas: dict[int, RegisteredSchema] = {}
        self._unknown: dict[int, float] = {}

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return a schema by its id; None if the registry has none."""
        if (known := self._schemas.get(schema_id)) is not None:
            return known
        if time.monotonic() < self._unknown.get(schema_id, 0.0):
            return None
        if (found := self._get(f"/schemas/ids/{schema_id}")) is None:
            self._unknown[schema_id] = time.monotonic() + UNKNOWN_SECONDS
            return None
        self._schemas[schema_id] = self._registered(found)
        return self._schemas[schema_id]

    def referenced(self, reference: Reference) -> RegisteredSchema | None:
        """Return a schema that another one refers to, also one that was deleted since."""
        subject = quote(reference.subject, safe="")
        found = self._get(f"/subjects/{subject}/versions/{reference.version}?deleted=true")
        return None if found is None else self._registered(found)

    def close(self) -> None:
        """Close connections."""
        if self._pool is not None:
            self._pool.clear()

    def _registered(self, answer: Mapping[str, Any]) -> RegisteredSchema:
        try:
            return RegisteredSchema(
                type=str(answer.get("schemaType") or AVRO),
                text=_text(answer["schema"]),
                references=tuple(
                    Reference(
                        name=_text(each["name"]), subject=_text(each["subject"]), version=int(each["version"])
                    )
                    for each in answer.get("references") or ()
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._no_registry("its answer has no schema") from error

    def _get(self, path: str) -> Mapping[str, Any] | None:
        """Return an answer; None if the registry does not know what was asked for."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                return self._answer(path)
            except SourceUnavailable:
                if not left:
                    raise
                time.sleep(_PAUSE_SECONDS)
        raise AssertionError("unreachable")

    def _answer(self, path: str) -> Mapping[str, Any] | None:
        import urllib3

        try:
            # A redirect would send the password to an address that the platform file does not name.
            response = self._opened().request(
                "GET",
                self._url + path,
                headers=self._headers(),
                redirect=False,
                retries=False,
                preload_content=False,
            )
            try:
                status, body = response.status, response.read(MAX_ANSWER_BYTES + 1)
            finally:
                response.release_conn()
        except urllib3.exceptions.SSLError as error:
            raise self._refused(
                f"its certificate is not trusted ({_reason(error)})",
                "set schema_registry.ca_file of the connection to the certificates that sign it",
            ) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unavailable(type(error).__name__) from error
        return self._judged(status, body)

    def _judged(self, status: int, body: bytes) -> Mapping[str, Any] | None:
        if status >= 500 or status in _PASSING:
            raise self._unavailable(f"status {status}")
        if status in (401, 403):
            raise self._refused(
                f"it refuses the user (status {status})",
                "correct schema_registry.user and the variable that its password names",
            )
        if status not in (200, 404):
            raise self._no_registry(f"it answers with status {status}")
        if len(body) > MAX_ANSWER_BYTES:
            raise self._no_registry(f"its answer has more than {MAX_ANSWER_BYTES:,} bytes")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self._no_registry("its answer is no JSON") from error
        if not isinstance(answer, dict):
            raise self._no_registry("its answer is no JSON object")
        if status == 200:
            return answer
        if answer.get("error_code") in _UNKNOWN_CODES:
            return None
        raise self._no_registry("it does not know the path of schemas")

    def _opened(self) -> urllib3.PoolManager:
        if self._pool is None:
            import urllib3

            self._pool = urllib3.PoolManager(
                num_pools=1,
                timeout=urllib3.Timeout(total=self._timeout_seconds),
                cert_reqs="CERT_REQUIRED",
                ca_certs=self._ca_file,
            )
        return self._pool

    def _headers(self) -> dict[str, str]:
        from urllib3.util import make_headers

        headers = {"accept": _MEDIA_TYPES}
        if self._user is not None:
            credentials = f"{self._user}:{self._password or ''}".encode()
            # As bytes of UTF-8, which the argument of `make_headers` would be refused for.
            headers |= make_headers(basic_auth=credentials.decode("latin-1"))
        return headers

    def _unavailable(self, why: str) -> SourceUnavailable:
        return SourceUnavailable(
            f"the schema registry {self._url} does not answer: {why}",
            fix="see whether it is up, and schema_registry.url of the connection right; the step is repeated",
            source=self._topic,
        )

    def _refused(self, why: str, fix: str) -> SourceRefused:
        return SourceRefused(f"schemas cannot be read from {self._url}: {why}", fix=fix, source=self._topic)

    def _no_registry(self, why: str) -> SourceRefused:
        return self._refused(why, "let schema_registry.url of the connection name a schema registry")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it is no text")
    return value


def _reason(error: Exception) -> str:
    """Return what is wrong with a certificate, without what was being sent."""
    text = str(error)
    found = text.rpartition("verify failed: ")[2] if "verify failed: " in text else type(error).__name__
    return found.partition(" (_ssl")[0].strip("()'\" ")
