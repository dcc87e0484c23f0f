"""A bucket of its own on an S3-compatible server, and an installation whose pipeline reads files from it.

Belongs here: what tests of files in an object store share. Does not belong here: what they expect.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import obstore
from obstore.store import S3Store

from etl_assets.settings import load_settings
from etl_assets.settings.connections import ObjectStoreConnection
from etl_assets.sources.formats import Csv
from etl_assets.sources.objects.backend import backend_of
from etl_assets.sources.objects.bucket import Bucket
from etl_assets.sources.objects.folders import ObjectFolders
from etl_assets.stack.s3 import S3Server
from etl_assets.steps.placing import place
from etl_assets.steps.step import ReadMode, StepArguments, StepContext, StepReport
from etl_assets.steps.step import step_of as build_step
from etl_assets_tests.commands.home import Home

SOURCE, REJECTS = "people_source", "people_source_rejects"
START = dt.date(2026, 1, 1)
CREDENTIALS = {"LAKE_ID": "local", "LAKE_KEY": "not-checked"}


@dataclass(slots=True)
class Lake:
    """A bucket, and the port by which it is reached."""

    server: S3Server
    bucket: str
    port: int

    @classmethod
    def create(cls, server: S3Server, port: int | None = None) -> Lake:
        lake = cls(server, f"lake-{uuid.uuid4().hex[:8]}", port or server.port)
        lake.make()
        return lake

    def make(self) -> None:
        """Make the bucket; a server that was started again has none."""
        client = boto3.client(
            "s3",
            endpoint_url=self.server.url,
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="not-checked",
        )
        client.create_bucket(Bucket=self.bucket)
        client.close()

    def put(self, key: str, content: bytes | str) -> None:
        store = S3Store(
            self.bucket,
            endpoint=self.server.url,
            region="us-east-1",
            access_key_id="local",
            secret_access_key="not-checked",
            client_options={"allow_http": True},
        )
        obstore.put(store, f"root/{key}", content if isinstance(content, bytes) else content.encode())

    @property
    def connection(self) -> dict[str, Any]:
        return {
            "type": "object_store",
            "root": f"s3://{self.bucket}/root",
            "endpoint": f"http://127.0.0.1:{self.port}",
            "region": "us-east-1",
            "access_key_id": "${LAKE_ID}",
            "secret_access_key": "${LAKE_KEY}",
        }

    def folders(self, **fields: Any) -> ObjectFolders:
        """The folder `in`, as a source."""
        connection = ObjectStoreConnection(**self.connection)
        bucket = Bucket(connection.root, lambda: backend_of(connection, retry_seconds=1))
        given: dict[str, Any] = {
            "source": "files",
            "format": Csv(),
            "pattern": "*.csv",
            "by_day": False,
            "bucket": bucket,
            "prefix": "in",
            **fields,
        }
        return ObjectFolders(**given)

    def home(self, folder: Path, **source: Any) -> Home:
        """An installation whose pipeline `people` reads the bucket."""
        home = Home(path=folder / "home")
        home.begin(start_date=START.isoformat(), connections={"lake": self.connection})
        spec = {
            "name": "people",
            "source": {"type": "files", "connection": "lake", "path": "in/*.csv", "id": ["id"], **source},
            "columns": {"id": "string", "age": "int"},
            "table": {"keys": ["id"]},
        }
        (home.path / "pipelines").mkdir(exist_ok=True)
        (home.path / "pipelines" / "people.yaml").write_text(json.dumps(spec), "utf-8")
        return home


def read(home: Home, days: Sequence[dt.date] = ()) -> StepReport:
    """Carry out the step that reads the files, in this process and without Spark."""
    settings = load_settings({"ETL_ASSETS_HOME": str(home.path)})
    context = StepContext(session=_no_spark, domain=place(settings.placement(), SOURCE))
    step = build_step(SOURCE, StepArguments(settings=settings, context=context, mode=ReadMode.INCREMENTAL))
    return step.run(list(days) or [dt.datetime.now(dt.UTC).date()])


def _no_spark() -> Any:
    raise AssertionError("little work needs no Spark")
