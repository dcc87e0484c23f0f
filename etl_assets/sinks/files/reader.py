"""Reading a dataset: the files that its newest manifest lists, for DuckDB, Polars, pyarrow or Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etl_assets.errors import NotFound
from etl_assets.mirroring.stores.opening import open_store
from etl_assets.sinks.files.manifest import Manifest, newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """What a reader needs: the manifest, and the addresses of its files."""

    manifest: Manifest
    files: tuple[str, ...]


def read_manifest(url: str) -> Dataset:
    """Return the newest manifest of a dataset, and its files as addresses.

    The files stay for the retention of the sink after a newer manifest. Readers that take longer read again.

    Args:
        url: The dataset: `/data/out/films` or `s3://bucket/out/films`.

    Raises:
        NotFound: nothing was delivered there.
        Unanswered: the store does not answer.
    """
    root, _, target = url.rstrip("/").rpartition("/")
    if "://" not in root and not Path(root).is_dir():
        raise _nothing(url)
    manifest = newest(open_store(root), target)
    if manifest is None:
        raise _nothing(url)
    return Dataset(
        manifest=manifest, files=tuple(f"{url.rstrip('/')}/{each.path}" for each in manifest.files)
    )


def _nothing(url: str) -> NotFound:
    return NotFound(f"{url} has no manifest", fix="deliver to it, or correct the address")
