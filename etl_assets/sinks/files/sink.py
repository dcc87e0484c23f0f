"""The sink of Parquet files: a dataset that is the table, in files that its newest manifest lists.

Belongs here: what a delivery does. Does not belong here: manifests (`manifest.py`), writing data files
(`data_files.py`), removing them (`retention.py`).

A delivery writes new files beside the current ones, and then one manifest under the next number, only if
there is none of that number. Until then nobody sees anything of it. Of two writers one creates the manifest;
so does a writer that was paused meanwhile: it finds the number taken.
"""

from __future__ import annotations

import datetime as dt
import re
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.errors import ContractError, SinkFenced, SinkRefused, SinkUnavailable, Unanswered
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.mirroring.stores.opening import open_store
from etl_assets.sinks.files.data_files import MAX_FILE_BYTES, DataFileWriter
from etl_assets.sinks.files.keys import encoded, keys_of
from etl_assets.sinks.files.manifest import DatasetFile, Manifest, manifest_key, newest, read
from etl_assets.sinks.files.retention import remove_old
from etl_assets.sinks.sink import Delivered, Delivery, Guarantee, SinkPosition

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.contracts.columns import TableContract
    from etl_assets.mirroring.stores.store import Store

DEFAULT_RETENTION_HOURS = 24.0
SMALL_FILE_BYTES = 8 * 1024 * 1024
MAX_SMALL_FILES = 16
_CLEAN_EVERY = 16
_TARGET = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*")


class FilesSink:
    """A dataset of Parquet files. EXACTLY_ONCE: files and position appear with one conditional put."""

    guarantee = Guarantee.EXACTLY_ONCE
    keeps_position = True
    applies_deletes = True

    def __init__(
        self,
        root: str,
        target: str,
        *,
        partition_by: Sequence[str] | None = None,
        retention_hours: float = DEFAULT_RETENTION_HOURS,
        max_file_bytes: int = MAX_FILE_BYTES,
        store: Store | None = None,
    ) -> None:
        """Name the target; nothing is asked yet.

        Args:
            root: The allowed folder or bucket: `/data/out`, `s3://bucket/out`.
            target: The dataset below it: `films`, `marts/films`.
            partition_by: Columns that files are divided by; None for those of the table.
            retention_hours: How long files stay after they were replaced. Longer than any reader reads.
            max_file_bytes: About the largest size of a file.
            store: A store that is open already.

        Raises:
            SinkRefused: the target leaves the root.
        """
        self.target = f"{root.rstrip('/')}/{target}" if "://" in root else f"file://{root}/{target}"
        is_below = _TARGET.fullmatch(target) is not None
        if is_below and "://" not in root:
            real = Path(root).expanduser().resolve()
            is_below = (real / target).resolve().is_relative_to(real)
            root = str(real)
        if not is_below:
            raise SinkRefused(
                f"files: the target {target!r} is not a folder below {root}",
                fix="use letters, digits, _, - and . between slashes, and no link that leads elsewhere",
                sink=target,
            )
        self._root, self._name = root, target
        self._partition_by, self._max_file_bytes = partition_by, max_file_bytes
        self._retention_seconds = retention_hours * 3600
        self._given_store = store
        self._contract: TableContract | None = None

    def prepare(self, contract: TableContract) -> None:
        """Check that rows of the contract can follow those that are there. Writes nothing.

        Raises:
            SinkRefused: a column changed to a type that cannot hold its values.
        """
        partition_by = contract.delta_partition if self._partition_by is None else self._partition_by
        for name in partition_by:
            contract.column(name)
        with self._answering():
            found = newest(self._store, self._name)
        for name, type_ in {} if found is None else found.columns.items():
            wanted = contract.column(name).type if name in contract.names else type_
            if wanted != type_ and not _may_widen(type_, wanted):
                raise SinkRefused(
                    f"{self.target} has a column {name!r} of type {type_}, and rows have {wanted}",
                    fix="choose another target: files with both types are no table",
                    sink=self.target,
                )
        self._contract = contract

    def position(self) -> SinkPosition | None:
        with self._answering():
            found = newest(self._store, self._name)
        return None if found is None else found.position

    def deliver(self, delivery: Delivery) -> Delivered:
        contract = self._contract
        if contract is None:
            raise ContractError("a sink is prepared before it is delivered to", fix="call prepare first")
        with self._answering():
            base = newest(self._store, self._name)
            if (None if base is None else base.position) != delivery.before:
                raise self._fenced()
            number = 1 if base is None else base.number + 1
            # 1. Write files: new rows, and the rows that stay of files that lose some.
            kept, written, figures = self._write(contract, delivery, base, number)
            manifest = Manifest(
                number=number,
                attempt=uuid.uuid4().hex,
                previous=None if base is None else base.attempt,
                position=delivery.after,
                written_at=dt.datetime.now(dt.UTC).isoformat(),
                columns={column.name: column.type for column in contract.columns},
                keys=contract.merge_key,
                files=(*kept, *written),
            )
            failpoint(Failpoint.SINK_BEFORE_TARGET_COMMIT, table=contract.name)
            delivery.expect_current()
            # 2. One conditional put makes them the table.
            self._commit(manifest)
            failpoint(Failpoint.SINK_AFTER_TARGET_COMMIT, table=contract.name)
            # 3. Remove what has been replaced for long; from time to time, since it lists every file.
            if number % _CLEAN_EVERY == 0:
                self.remove_old()
        return figures

    def remove_old(self) -> int:
        """Remove files that were replaced before the retention began; returns their number."""
        with self._answering():
            return remove_old(
                self._store, self._name, retention_seconds=self._retention_seconds, now=time.time()
            )

    def close(self) -> None:
        """Do nothing: no connection is kept."""

    @property
    def _store(self) -> Store:
        if self._given_store is None:
            self._given_store = open_store(self._root)
        return self._given_store

    def _write(
        self, contract: TableContract, delivery: Delivery, base: Manifest | None, number: int
    ) -> tuple[tuple[DatasetFile, ...], tuple[DatasetFile, ...], Delivered]:
        """Return the current files that stay, the new ones, and the figures."""
        schema = data_file_schema(contract)
        partition_by = contract.delta_partition if self._partition_by is None else self._partition_by
        current = () if base is None else base.files
        writer = DataFileWriter(
            self._store,
            self._name,
            number=number,
            schema=schema,
            partition_by=partition_by,
            max_file_bytes=self._max_file_bytes,
        )
        with writer:
            changed, gone = self._keys(contract, delivery, has_rows=bool(current))
            new_rows = 0
            for batch in delivery.rows():
                writer.write(batch)
                new_rows += batch.num_rows
            failpoint(Failpoint.SINK_DURING_DELIVERY, table=contract.name)
            kept, deleted = [], 0
            again = current if _differs(base, contract) else _small(current)
            rewrite = {each.path for each in again}
            for file in current:
                path = f"{self._name}/{file.path}"
                with _local(self._store, path) as source:
                    lost = _lost(source, contract.merge_key, changed, gone, whole=delivery.whole)
                    deleted += lost.deleted
                    if lost.is_none and file.path not in rewrite:
                        kept.append(file)
                    elif not delivery.whole:
                        for batch in _left(source, contract.merge_key, changed, gone, schema):
                            writer.write(batch)
            return tuple(kept), writer.finish(), Delivered(written=new_rows, deleted=deleted)

    def _keys(self, contract: TableContract, delivery: Delivery, *, has_rows: bool) -> tuple[Any, Any]:
        """Return the keys of changed and of deleted rows; none if there is nothing to compare them with."""
        if not has_rows:
            return keys_of((), contract.merge_key), keys_of((), contract.merge_key)
        return keys_of(delivery.rows(), contract.merge_key), keys_of(delivery.deleted(), contract.merge_key)

    def _commit(self, manifest: Manifest) -> None:
        """Create the manifest.

        Raises:
            SinkFenced: another writer has created one of this number, or had and it was removed since.
        """
        key = manifest_key(self._name, manifest.number)
        if not self._store.create(key, manifest.text()):
            # The answer to this writer's own put may have been lost.
            found = read(self._store, self._name, manifest.number)
            if found is None or found.attempt != manifest.attempt:
                raise self._fenced()
        self._store.persist([key])
        # A writer that slept through the retention may find its number free again: a newer manifest tells.
        last = newest(self._store, self._name)
        if last is None or last.number == manifest.number:
            return
        following = read(self._store, self._name, manifest.number + 1)
        if following is None or following.previous != manifest.attempt:
            self._store.delete(key)
            raise self._fenced()

    def _fenced(self) -> SinkFenced:
        return SinkFenced(
            f"{self.target}: another writer has moved the position",
            fix="repeat the step: it begins at the target's position",
            sink=self.target,
        )

    @contextmanager
    def _answering(self) -> Generator[None]:
        """Turn what a store or this machine's disk refuses into `SinkUnavailable`."""
        try:
            yield
        except (Unanswered, OSError) as error:
            what = error.message if isinstance(error, Unanswered) else f"{error.strerror or error}"
            raise SinkUnavailable(
                f"{self.target}: {what}",
                fix="see that the folder or bucket is there, writable and not full; the temporary folder too",
                sink=self.target,
            ) from error


class _Lost:
    """How many rows of a file are replaced, and how many are gone."""

    def __init__(self, replaced: int, deleted: int) -> None:
        self.replaced, self.deleted = replaced, deleted

    @property
    def is_none(self) -> bool:
        return not self.replaced and not self.deleted


def _lost(source: Any, names: Sequence[str], changed: pa.Array, gone: pa.Array, *, whole: bool) -> _Lost:
    """Count the rows of a file that a delivery takes away, from its key columns alone."""
    import pyarrow.compute

    pc: Any = pyarrow.compute  # its functions are made at import

    if not whole and not len(changed) and not len(gone):
        return _Lost(0, 0)
    keys = encoded(source.read(columns=list(names)), names)
    replaced = pc.sum(pc.is_in(keys, value_set=changed)).as_py() or 0
    if whole:
        # A whole delivery takes the file away, also if it has no row left to lose.
        return _Lost(max(replaced, 1), len(keys) - replaced)
    return _Lost(replaced, pc.sum(pc.is_in(keys, value_set=gone)).as_py() or 0)


def _left(
    source: Any, names: Sequence[str], changed: pa.Array, gone: pa.Array, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that stay, with the columns of today."""
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute  # its functions are made at import

    taken = pa.concat_arrays([changed, gone])
    keys = encoded(source.read(columns=list(names)), names)
    stays = pc.invert(pc.is_in(keys, value_set=taken))
    first = 0
    for batch in source.iter_batches(batch_size=16_384):
        left = batch.filter(stays.slice(first, batch.num_rows))
        first += batch.num_rows
        columns = [
            left.column(field.name).cast(field.type)
            if field.name in left.schema.names
            else pa.nulls(left.num_rows, field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def _local(store: Store, key: str) -> Generator[Any]:
    """Open a data file of the store, through a copy on this machine."""
    import tempfile

    import pyarrow.parquet as pq

    content = store.read(key)
    if content is None:
        raise SinkRefused(
            f"{store.name}/{key} is listed by the newest manifest and is gone",
            fix="put it back, or let the next delivery begin again at another target",
            sink=f"{store.name}/{key}",
        )
    with tempfile.TemporaryFile() as copy:
        for chunk in content:
            copy.write(chunk)
        copy.seek(0)
        yield pq.ParquetFile(copy)


def _differs(base: Manifest | None, contract: TableContract) -> bool:
    return base is not None and dict(base.columns) != {each.name: each.type for each in contract.columns}


def _small(files: Sequence[DatasetFile]) -> list[DatasetFile]:
    """Return small files of partitions that have too many of them."""
    by_partition: dict[tuple[Any, ...], list[DatasetFile]] = {}
    for file in files:
        if file.size_bytes < SMALL_FILE_BYTES:
            by_partition.setdefault(tuple(file.partition.items()), []).append(file)
    return [file for small in by_partition.values() if len(small) >= MAX_SMALL_FILES for file in small]


def _may_widen(found: str, wanted: str) -> bool:
    from etl_assets.contracts.column_types import DecimalType, parse

    old, new = parse(found), parse(wanted)
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    return (found, wanted) in (("INT", "BIGINT"), ("INT", "DOUBLE"))
