"""The S3-compatible store as the project starts it."""

from __future__ import annotations

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from etl_assets.processes import is_there
from etl_assets.stack.s3 import S3Server


def test_an_object_is_put_once_and_the_store_forgets_it_when_it_is_killed():
    import boto3

    with S3Server() as server:
        client = boto3.client(
            "s3",
            endpoint_url=server.url,
            region_name="us-east-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",
        )
        client.create_bucket(Bucket="once")
        store = S3Store(
            "once",
            endpoint=server.url,
            region="us-east-1",
            access_key_id="a",
            secret_access_key="b",
            client_options={"allow_http": True},
        )
        obstore.put(store, "key", b"first", mode="create")
        with pytest.raises(AlreadyExistsError):
            obstore.put(store, "key", b"second", mode="create")
        first = server.pid
        server.kill()
        server.start()
        assert client.list_buckets()["Buckets"] == []
        client.close()
        second, folder = server.pid, server.folder
    assert not is_there(first)
    assert not is_there(second)
    assert not folder.exists()
