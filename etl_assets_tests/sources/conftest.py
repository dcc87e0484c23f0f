"""Servers of these tests."""

from __future__ import annotations

from etl_assets_tests.servers import kafka_server, postgres_server

__all__ = ["kafka_server", "postgres_server"]
