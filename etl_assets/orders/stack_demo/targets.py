"""What arrived in the sinks, read by their own clients: the keys of a pipeline's rows, as texts.

Belongs here: one reader for each kind of sink. Nothing here goes through the platform's tables or its records
of deliveries, but for the manifest, which is how a dataset of files is read.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etl_assets.orders.stack_demo.contents import BUCKET, S3_KEY, S3_SECRET, Contents
from etl_assets.stack.full import FullStack
from etl_assets.stack.s3 import REGION
from etl_assets.stack.server import HOST

_SECONDS = 60
_DOCUMENTS_PER_PAGE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The sinks of the example.

    Attributes:
        stack: The servers.
        contents: The secrets.
        home: The installation, for files.
    """

    stack: FullStack
    contents: Contents
    home: Path

    @property
    def readers(self) -> Mapping[str, Callable[[str, str], Counter[str]]]:
        """For each sink a function from the pipeline and its key column to the keys, each counted."""
        return {
            "PostgreSQL": lambda name, key: postgres_keys(self.contents.database_url, name, key),
            "search": lambda name, key: search_keys(self.stack.search.port, name, key),
            "Kafka": lambda name, key: kafka_keys(self.stack.kafka.url, f"delivered.{name}", key),
            "Parquet": lambda name, key: parquet_keys(
                self.stack.s3.url, self.contents.environ, f"shop/{name}", key
            ),
            "DuckDB": lambda name, key: duckdb_keys(self.home / "exports" / "marts.duckdb", name, key),
        }


def postgres_keys(url: str, table: str, key: str) -> Counter[str]:
    """Return the keys of a table in the schema `analytics`."""
    import psycopg
    from psycopg import sql

    query = sql.SQL("SELECT {}::text FROM analytics.{}").format(sql.Identifier(key), sql.Identifier(table))
    with psycopg.connect(url) as connection:
        return _counted(connection.execute(query))


def search_keys(port: int, pipeline: str, key: str) -> Counter[str]:
    """Return the keys of the documents that a search of the index finds."""
    from opensearchpy import OpenSearch
    from opensearchpy.helpers import scan

    index = f"shop_{pipeline}"
    client = OpenSearch(f"http://{HOST}:{port}", timeout=_SECONDS)
    try:
        client.indices.refresh(index=index)
        hits = scan(client, index=index, size=_DOCUMENTS_PER_PAGE, _source=[key])
        return Counter(str(hit["_source"][key]) for hit in hits)
    finally:
        client.close()


def kafka_keys(brokers: str, topic: str, key: str) -> Counter[str]:
    """Return the keys whose newest committed record has a value."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "etl-assets-demo",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    newest: dict[bytes | None, str | None] = {}
    try:
        partitions = set(consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        while partitions:
            if (message := consumer.poll(_SECONDS)) is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            if (error := message.error()) is None:
                value = message.value()
                newest[message.key()] = None if value is None else str(json.loads(value)[key])
            elif error.code() == KafkaError._PARTITION_EOF:
                partitions.discard(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return Counter(each for each in newest.values() if each is not None)


def parquet_keys(endpoint: str, secrets: Mapping[str, str], target: str, key: str) -> Counter[str]:
    """Return the keys in the files that the newest manifest of a dataset lists."""
    import obstore
    import pyarrow.parquet as pq
    from obstore.store import S3Store

    from etl_assets.mirroring.stores.object_store import ObjectStore
    from etl_assets.sinks.files.manifest import newest

    store = S3Store(
        BUCKET,
        prefix="exports",
        config={
            "endpoint": endpoint,
            "region": REGION,
            "access_key_id": secrets[S3_KEY],
            "secret_access_key": secrets[S3_SECRET],
        },
        client_options={"allow_http": True},
    )
    manifest = newest(ObjectStore(store, name=f"s3://{BUCKET}/exports"), target)
    found: Counter[str] = Counter()
    for file in () if manifest is None else manifest.files:
        content = obstore.get(store, f"{target}/{file.path}").bytes()
        column = pq.read_table(io.BytesIO(content), columns=[key])[key]
        found.update(str(each) for each in column.to_pylist())
    return found


def duckdb_keys(file: Path, table: str, key: str) -> Counter[str]:
    """Return the keys of a table in the schema `analytics`."""
    import duckdb

    with duckdb.connect(str(file), read_only=True) as connection:
        rows = connection.execute(f'SELECT "{key}"::text FROM analytics."{table}"').fetchall()
    return _counted(rows)


def _counted(rows: Iterable[Any]) -> Counter[str]:
    return Counter(row[0] for row in rows)
