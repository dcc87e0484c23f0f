"""A platform of three failure domains, and commits to a mirrored table as Spark would make them, without
Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml

from etl_assets.mirroring.stores.circuit_breaker import DEFAULT_TIMEOUT_SECONDS
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domains import Placement
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table

A, B, C = "local/a", "local/b", "local/c"
TABLE = "customers"


def three_domains(home: Path, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> Placement:
    """Write the platform file of an installation, and take its roots into use."""
    found = named_domains(home, dict.fromkeys((A, B, C), "voter"), timeout_seconds=timeout_seconds)
    found.place(PlacementClass.INGEST)
    return found


def named_domains(
    home: Path,
    roles: Mapping[str, str],
    *,
    roots: Mapping[str, str] = MappingProxyType({}),
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> Placement:
    """Write the platform file of an installation with these domains; roots are not touched."""
    domains = [
        {"name": name, "root": roots.get(name, name[-1]), "role": role} for name, role in roles.items()
    ]
    platform = {"domains": domains, "health": {"timeout_seconds": timeout_seconds}}
    (home / "platform.yaml").write_text(yaml.safe_dump(platform), "utf-8")
    return load_settings().placement()


def commit(placement: Placement, name: str, *, rows: int = 0, followed: bool = True) -> int:
    """Commit one data file to the table from a domain, as Spark would, and have it acknowledged.

    Two of three acknowledge it; the third gets it meanwhile. Unless it is to be `followed` by all that
    answer, a test that then takes a root away, or looks into it, does so at any moment of that.
    """
    domain = placement.named(name)
    assert domain is not None
    mirrored = platform_table(TABLE, domain).replication
    assert mirrored is not None
    mirrored.create()
    lead = mirrored.lead()
    version, folder = lead.version + 1, mirrored.folder(lead)
    (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
    (folder / f"part-{version}.parquet").write_bytes(b"rows" * version)
    file = {"path": f"part-{version}.parquet", "size": 4 * version, "partitionValues": {}}
    add = {"add": {**file, "stats": json.dumps({"numRecords": rows})}}
    entry = f"{json.dumps({'commitInfo': {'by': name}})}\n{json.dumps(add)}\n".encode()
    (folder / "_delta_log" / f"{version:020d}.json").write_bytes(entry)
    mirrored.acknowledge(lead, entry)
    if followed:
        mirrored.follow()
    return version


def root_of(placement: Placement, name: str) -> Path:
    domain = placement.named(name)
    assert domain is not None
    return domain.root
