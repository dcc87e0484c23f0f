"""OpenSearch as the project starts it."""

from __future__ import annotations

import pytest
from opensearchpy import OpenSearch
from opensearchpy.helpers import bulk

from etl_assets.errors import AddressUnusable
from etl_assets.processes import is_there
from etl_assets.stack.opensearch import OpenSearchServer


def versioned(version, status):
    return {
        "_index": "orders",
        "_id": "1",
        "_source": {"status": status},
        "version": version,
        "version_type": "external_gte",
    }


def test_an_older_external_version_is_refused_and_a_killed_node_keeps_the_newer():
    with OpenSearchServer() as server:
        client = OpenSearch(server.url, timeout=60)
        assert bulk(client, [versioned(2, "paid")]) == (1, [])
        done, errors = bulk(client, [versioned(1, "placed")], raise_on_error=False)
        assert (done, errors[0]["index"]["status"]) == (0, 409)
        with pytest.raises(AddressUnusable, match=f"OpenSearch cannot listen on port {server.port}"):
            OpenSearchServer(port=server.port).__enter__()
        server.kill()
        server.start()
        client.cluster.health(wait_for_status="yellow")
        assert client.get(index="orders", id="1")["_source"] == {"status": "paid"}
        client.close()
        pid, folder = server.pid, server.folder
    assert not is_there(pid)
    assert not folder.exists()
