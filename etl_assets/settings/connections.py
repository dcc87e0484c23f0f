"""Connections: addresses of systems outside the platform, by name, and what pipelines may write there.

A pipeline names a connection and cannot contain an address. So this section is the list of allowed targets:
it is checked when a pipeline is validated, and again at each write.

Belongs here: one small class for each type of connection. Does not belong here: opening one (`sinks/`,
`sources/`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from etl_assets.settings.connection import (
    Address,
    Connection,
    Endpoint,
    FilePathText,
    Host,
    Port,
    endpoint_of,
    no_credentials,
)
from etl_assets.settings.secret import Secret, TextWithSecrets, holds_credentials
from etl_assets.settings.section import Section

CONNECTION_NAME = r"^[a-z][a-z0-9_-]*$"
SEARCH_PORT = 9200
SILENCE_SECONDS = 60
"""After how long a PostgreSQL server that the network no longer reaches counts as gone."""
OWN_IDENTITY_OFF: Mapping[str, Any] = {
    "passfile": "/dev/null",
    "gssencmode": "disable",
    "sslcertmode": "disable",
}
"""Parameters of libpq by which a server gets nothing that belongs to the user of the process."""
OWN_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "etl-assets-change",
        "etl-assets-delivery",
        "etl-assets-table",
        "expect",
        "host",
        "idempotency-key",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)
"""Headers of a webhook's calls that the platform sets, in lower case."""


_URL = re.compile(r"https?://(\[[0-9a-fA-F:]+\]|[^/\s?#:\[\]]+)(:\d{1,5})?(/[^\s?#]*)?")


class PostgresConnection(Connection):
    """A PostgreSQL database."""

    type: Annotated[Literal["postgres"], Field(description="what it is")]
    host: Annotated[Host, Field(description="name or address")]
    port: Annotated[Port, Field(description="port")] = 5432
    database: Annotated[str, Field(description="name of the database", min_length=1, max_length=63)]
    user: Annotated[str | None, Field(min_length=1, description="by default the user of the process")] = None
    password: Annotated[Secret | None, Field(description="`${NAME}` or `${file:/path}`")] = None
    sslmode: Annotated[
        Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"],
        Field(description="as libpq has it"),
    ] = "prefer"
    sslrootcert: Annotated[
        str | None, Field(min_length=1, description="file of certificates that sign the server's")
    ] = None
    connect_timeout_seconds: Annotated[int, Field(ge=1, le=300, description="to open a connection")] = 10
    statement_timeout_seconds: Annotated[
        int, Field(ge=1, le=86_400, description="for one statement; a load is several")
    ] = 600
    lock_timeout_seconds: Annotated[
        int, Field(ge=1, le=3_600, description="to wait for a lock that another session holds")
    ] = 30

    read_sessions: Annotated[
        int, Field(ge=1, le=16, description="sessions that read one large range of a full load at a time")
    ] = 2

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the hosts that it names."""
        return (Endpoint("host", self.host, self.port),)

    @property
    def keepalive(self) -> Mapping[str, Any]:
        """Parameters of libpq by which a network that went silent is noticed within `SILENCE_SECONDS`.

        Without them a statement waits for the kernel, two hours where nothing is to be sent.
        """
        return {
            "keepalives": 1,
            "keepalives_idle": SILENCE_SECONDS // 3,
            "keepalives_interval": SILENCE_SECONDS // 6,
            "keepalives_count": 4,
            "tcp_user_timeout": SILENCE_SECONDS * 1_000,
        }


class SqlConnection(Connection):
    """A database that SQLAlchemy can read."""

    type: Annotated[Literal["sql"], Field(description="what it is")]
    driver: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9_]+(\+[a-z0-9_]+)?$",
            examples=["mysql+pymysql", "sqlite"],
            description="dialect and driver of SQLAlchemy",
        ),
    ]
    host: Annotated[Host | None, Field(description="name or address")] = None
    port: Annotated[Port | None, Field(description="port")] = None
    database: Annotated[str | None, Field(min_length=1, description="its name; for SQLite the file")] = None
    user: Annotated[str | None, Field(description="user; by default none is sent", min_length=1)] = None
    password: Annotated[Secret | None, Field(description="`${NAME}` or `${file:/path}`")] = None
    options: Annotated[Mapping[str, str], Field(description="query parameters of the URL")] = {}

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the hosts that it names."""
        return () if self.host is None else (Endpoint("host", self.host, self.port or 0),)


class SchemaRegistry(Section):
    """A Confluent-compatible schema registry, for values in Avro and JSON Schema."""

    url: Annotated[
        Address,
        Field(
            pattern=r"^https?://[^\s/]+(/\S*)?$",
            description="its address",
            examples=["https://registry:8081"],
        ),
    ]
    user: Annotated[str | None, Field(description="user; by default none is sent", min_length=1)] = None
    password: Annotated[Secret | None, Field(description="`${NAME}` or `${file:/path}`")] = None
    ca_file: Annotated[
        str | None, Field(description="file of certificates that sign the server's", min_length=1)
    ] = None
    timeout_seconds: Annotated[int, Field(description="for one request", ge=1, le=300)] = 10


class KafkaConnection(Connection):
    """A Kafka cluster; `write` names topics."""

    type: Annotated[Literal["kafka"], Field(description="what it is")]
    bootstrap_servers: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[^@\s/,]+:\d+$")], ...],
        Field(min_length=1, examples=[["localhost:9092"]], description="`host:port` of some brokers"),
    ]
    security_protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        Field(description="as Kafka's clients have it"),
    ] = "PLAINTEXT"
    sasl_mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None,
        Field(description="how user and password are sent"),
    ] = None
    user: Annotated[str | None, Field(description="user; by default none is sent", min_length=1)] = None
    password: Annotated[Secret | None, Field(description="`${NAME}` or `${file:/path}`")] = None
    ca_file: Annotated[
        str | None, Field(description="file of certificates that sign the server's", min_length=1)
    ] = None
    certificate_file: Annotated[
        str | None, Field(description="file of the client certificate", min_length=1)
    ] = None
    key_file: Annotated[str | None, Field(description="file of its key", min_length=1)] = None
    key_password: Annotated[Secret | None, Field(description="`${NAME}` or `${file:/path}`")] = None
    schema_registry: Annotated[
        SchemaRegistry | None,
        Field(description="where schemas of values are, for Avro and JSON Schema"),
    ] = None

    def client_options(self) -> dict[str, Any]:
        """Return the options of librdkafka for this cluster, with the values of its secrets.

        Raises:
            SettingsError: an environment variable that the connection names is not set.
        """
        options = {
            "bootstrap.servers": ",".join(self.bootstrap_servers),
            "security.protocol": self.security_protocol,
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.user,
            "sasl.password": None if self.password is None else self.password.value(),
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.certificate_file,
            "ssl.key.location": self.key_file,
            "ssl.key.password": None if self.key_password is None else self.key_password.value(),
        }
        return {name: value for name, value in options.items() if value is not None}


class SearchConnection(Connection):
    """OpenSearch or Elasticsearch; `write` names indexes."""

    type: Annotated[Literal["search"], Field(description="what it is")]
    urls: Annotated[
        tuple[Address, ...],
        Field(description="addresses of its nodes", min_length=1, examples=[["https://localhost:9200"]]),
    ]
    user: Annotated[str | None, Field(description="user; by default none is sent", min_length=1)] = None
    password: Annotated[Secret | None, Field(description="`${NAME}` or `${file:/path}`")] = None
    ca_file: Annotated[
        str | None, Field(description="file of certificates that sign the server's", min_length=1)
    ] = None
    timeout_seconds: Annotated[int, Field(description="for one request", ge=1, le=600)] = 60

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the hosts that it names."""
        return tuple(
            endpoint_of(f"urls[{index}]", each, http_port=SEARCH_PORT) for index, each in enumerate(self.urls)
        )


class FolderConnection(Connection):
    """A folder of this machine; `write` names folders below it."""

    type: Annotated[Literal["folder"], Field(description="what it is")]
    path: Annotated[FilePathText, Field(description="relative to the home folder")]


class ObjectStoreConnection(Connection):
    """A bucket or container of an object store; `write` names folders below its prefix."""

    type: Annotated[Literal["object_store"], Field(description="what it is")]
    root: Annotated[
        str,
        Field(
            pattern=r"^(s3|gs|az)://[a-z0-9][a-z0-9._-]+(/[A-Za-z0-9._=/-]*)?$",
            examples=["s3://bucket/prefix"],
            description="bucket and prefix: `s3://`, `gs://` or `az://`",
        ),
    ]
    endpoint: Annotated[Address | None, Field(description="by default the provider's")] = None
    region: Annotated[str | None, Field(description="region", min_length=1)] = None
    access_key_id: Annotated[
        Secret | None,
        Field(
            description="`${NAME}` or `${file:/path}`; by default as the provider's own tools find it; of"
            " Azure the account"
        ),
    ] = None
    secret_access_key: Annotated[
        Secret | None,
        Field(description="`${NAME}` or `${file:/path}`; by default as the provider's own tools find it"),
    ] = None


def _url(value: str) -> str:
    usable = value.isascii() and re.fullmatch(
        r"https?://[^/\s?#:]+(:\d{1,5})?(/[^\s?#]*)?", no_credentials(value)
    )
    if not usable:
        raise ValueError("it is not the address of a server; such as `https://hooks.example.com/v1`")
    return value.rstrip("/")


def _headers(value: Mapping[str, str]) -> Mapping[str, TextWithSecrets]:
    for name, text in value.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or name.lower() in OWN_HEADERS:
            raise ValueError(f"{name!r} is no name of a header, or one that the platform sets itself")
        if not re.fullmatch(r"[\x20-\x7e]*", text):
            raise ValueError(f"the header {name} has a character that is not visible ASCII")
        if holds_credentials(name) and not TextWithSecrets(text).references:
            raise ValueError(
                f"the header {name} holds a secret, which does not stand in the file; write `${{NAME}}`, an"
                " environment variable"
            )
    return {name: TextWithSecrets(text) for name, text in value.items()}


class WebhookConnection(Connection):
    """An HTTP server; `write` names paths below its address, as pipelines write them."""

    type: Annotated[Literal["webhook"], Field(description="what it is")]
    url: Annotated[
        str,
        AfterValidator(_url),
        Field(
            max_length=2_000,
            examples=["https://hooks.example.com/v1"],
            description="address that paths are appended to",
        ),
    ]
    headers: Annotated[
        Mapping[str, str],
        AfterValidator(_headers),
        Field(
            examples=[{"Authorization": "Bearer ${HOOKS_TOKEN}"}],
            description="headers of each call; with secrets as `${NAME}` or `${file:/path}`",
        ),
    ] = {}
    signing_secret: Annotated[
        Secret | None,
        Field(
            description="`${NAME}` or `${file:/path}`, a `whsec_…` secret of Standard Webhooks; by default"
            " nothing is signed"
        ),
    ] = None
    ca_file: Annotated[
        str | None, Field(description="file of certificates that sign the server's", min_length=1)
    ] = None
    connect_timeout_seconds: Annotated[float, Field(gt=0, le=300, description="to open a connection")] = 10
    timeout_seconds: Annotated[float, Field(gt=0, le=600, description="for the answer to one call")] = 30
    concurrency: Annotated[int, Field(ge=1, le=64, description="most calls at a time, for each sink")] = 8

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the hosts that it names."""
        return (endpoint_of("url", self.url),)

    def secrets(self) -> tuple[Secret, ...]:
        """Return the references to its secrets, those in headers too."""
        in_headers = (each for text in self.headers.values() for each in TextWithSecrets(text).references)
        return (*super().secrets(), *in_headers)


class DuckdbConnection(Connection):
    """A DuckDB file; `write` names tables."""

    type: Annotated[Literal["duckdb"], Field(description="what it is")]
    path: Annotated[FilePathText, Field(description="relative to the home folder")]


AnyConnection = Annotated[
    PostgresConnection
    | SqlConnection
    | KafkaConnection
    | SearchConnection
    | FolderConnection
    | ObjectStoreConnection
    | DuckdbConnection
    | WebhookConnection,
    Field(discriminator="type"),
]
CONNECTION_TYPES: tuple[type[Connection], ...] = (
    PostgresConnection,
    SqlConnection,
    KafkaConnection,
    SearchConnection,
    FolderConnection,
    ObjectStoreConnection,
    DuckdbConnection,
    WebhookConnection,
)
"""All types of connections, for the generated page and for messages."""


def type_of(connection: type[Connection]) -> str:
    """Return what `type` says of a class of connections."""
    return connection.model_fields["type"].annotation.__args__[0]  # ty: ignore[missing-attribute]
