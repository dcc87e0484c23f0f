"""A Kafka topic as a source that is read in ranges of offsets.

Positions are the next offset of each partition (`orders/0`) and the id of the topic (`orders`), by which a
topic that was created again is known. Only records of committed transactions are read. A transaction's
markers and its aborted records use offsets, so that a range of offsets has at most as many records.

Ordering: of one partition, the order of offsets. Replay: a range has the same records each time, unless the
topic is compacted or retention removes them. Retention: the topic's; what it removes before it is read is
lost, and reported.

Belongs here: ranges and their records. Does not belong here: the files that they are written to
(`staged.py`).
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.errors import SourceLost
from etl_assets.sources.kafka.clients import SourceClients
from etl_assets.sources.kafka.range_writer import RangeWriter, by_day
from etl_assets.sources.kafka.taken_records import GatheredRecords
from etl_assets.sources.ranges import Lag, Positions, RangeRead, ReadRange, StagedFile

if TYPE_CHECKING:
    from confluent_kafka import Message

    from etl_assets.sources.kafka.registry_values import RegistryValues

ANSWER_SECONDS = 15.0
"""How long to wait for an answer of a broker."""
SILENCE_SECONDS = 60.0
"""How long to wait for the next record of a range: the time in which a broker comes back."""
MAX_FILES = 5_000
"""Most staged files of one batch; a range with more changes of day ends there."""
_MOST_AT_ONCE, _BYTES_AT_ONCE = 500, 8 << 20
"""How many messages, or about how many bytes of them, are taken at once. So few that the garbage collector,
which counts messages, has no reason to look at all objects of the process.
"""
_LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    """A topic as it is now: its id, whether it is compacted, and first and next offset by partition."""

    topic_id: str
    bounds: Mapping[int, tuple[int, int]]


class KafkaTopic:
    """The source.

    Args:
        options: Options of Kafka's clients: brokers and security.
        topic: Name of the topic.
        start: Where the first range begins: `earliest`, `latest` or a time with its zone.
        on_lost: `fail`, or `earliest` to go on at the oldest record.
        table: Name of the table that follows the topic, by which brokers know the client.
        values: Decodes values with a schema; None: they are JSON as they come.
    """

    def __init__(
        self,
        *,
        options: Mapping[str, Any],
        topic: str,
        start: str,
        on_lost: str,
        table: str,
        values: RegistryValues | None = None,
    ) -> None:
        self._topic, self._start, self._on_lost = topic, start, on_lost
        self._table, self._values = table, values
        self._clients = SourceClients(options, topic, f"etl-assets-{table}")

    @property
    def is_repeatable(self) -> bool:
        """Whether a range has the same records each time.

        Not of a compacted topic, nor of values with a schema: the registry may know one later that it did
        not know before.
        """
        from confluent_kafka.admin import ConfigResource, ResourceType

        if self._values is not None:
            return False
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        found = self._clients.answer(
            lambda: self._clients.admin().describe_configs([resource])[resource].result(ANSWER_SECONDS)
        )
        return "compact" not in found["cleanup.policy"].value

    def plan(self, positions: Positions, *, max_bytes: int, max_records: int) -> ReadRange | None:
        """Return the next range: about as many records of each partition."""
        self._clients.end_look()
        topic = self._now()
        begin, notes, moved = self._begin(topic, positions)
        waiting = {p: topic.bounds[p][1] - offset for p, offset in begin.items()}
        shares = _shares(waiting, max_records)
        lagging = sum(1 for share in shares.values() if share)
        if not lagging and not moved:
            return None
        end: dict[str, Any] = {self._name(p): begin[p] + shares[p] for p in begin}
        end |= {name: None for name in positions if name not in end and name != self._topic}
        return ReadRange(
            begin={self._name(p): offset for p, offset in begin.items()},
            end={self._topic: topic.topic_id, **end},
            details={
                "today": dt.datetime.now(dt.UTC).date().isoformat(),
                "bytes": max(1, max_bytes // max(1, lagging)),
                "by_day": True,
            },
            more=any(waiting[p] > shares[p] for p in begin),
            notes=notes,
        )

    def read(self, wanted: ReadRange, folder: Path) -> RangeRead:
        """Read one partition after the other. Files of one day are together where offsets allow it."""
        self._clients.end_look()
        topic_id = wanted.end[self._topic]
        if topic_id and (now := self._topic_id()) and now != topic_id:
            raise self._lost("the topic was created again", f"{self._topic} as it was")
        end, more, files = dict(wanted.end), wanted.more, list[Sequence[StagedFile]]()
        for partition, (first, last) in sorted(self._offsets(wanted).items()):
            writer = RangeWriter(
                folder,
                partition=partition,
                place=self._name(partition),
                identity=f"{self._name(partition)}@{topic_id}" if topic_id else "",
                today=dt.date.fromisoformat(wanted.details["today"]),
                most_files=max(1, MAX_FILES - sum(map(len, files))),
                is_decoded=self._values is not None,
            )
            reached = self._read_partition(partition, first, last, writer, wanted.details.get("bytes"))
            files.append(writer.close())
            end[self._name(partition)] = reached
            more = more or reached < last
        details = {name: value for name, value in wanted.details.items() if name != "bytes"}
        return RangeRead(
            read=ReadRange(begin=wanted.begin, end=end, details=details, more=more, notes=wanted.notes),
            # A plan that was left by an earlier version has another order, in which its rejects were found.
            files=tuple(by_day(files) if wanted.details.get("by_day") else chain.from_iterable(files)),
        )

    def confirm(self, positions: Positions) -> None:
        """Do nothing: retention is the topic's."""

    def lag(self, positions: Positions) -> Lag:
        """Return about how many records there are beyond the positions, and the time of the oldest."""
        self._clients.begin_look()
        topic = self._now()
        begin = self._begin(topic, positions, lost_is_error=False)[0]
        waiting = {p: offset for p, offset in begin.items() if topic.bounds[p][1] > offset}
        records = sum(topic.bounds[p][1] - offset for p, offset in waiting.items())
        if not records:
            moved = self._topic not in positions or positions[self._topic] != topic.topic_id
            return Lag(records=None if moved else 0, oldest=None)
        return Lag(records=records, oldest=self._oldest(waiting))

    def close(self) -> None:
        """Close the consumer."""
        if self._values is not None:
            self._values.close()
        self._clients.close()

    def _name(self, partition: int) -> str:
        return f"{self._topic}/{partition}"

    def _begin(
        self, topic: _Topic, positions: Positions, *, lost_is_error: bool = True
    ) -> tuple[dict[int, int], tuple[str, ...], bool]:
        """Return where each partition goes on, notes, and whether there is more to commit than offsets.

        Raises:
            SourceLost: records are gone, and `on_lost` is not `earliest`.
        """
        known = {p: positions[self._name(p)] for p in topic.bounds if self._name(p) in positions}
        is_new = self._topic not in positions
        if is_new and not known:
            return self._first(topic), (), True
        lost: list[str] = []
        before = positions.get(self._topic)
        if before and topic.topic_id and before != topic.topic_id:
            lost.append(f"{self._topic} was deleted and created again; what was unread in it")
            known = {}
        elif gone := sorted(n for n in positions if n != self._topic and not self._is_there(n, topic)):
            lost.append(f"partitions that are not there any more: {', '.join(gone)}")
        begin, notes = {}, []
        for p, (low, high) in topic.bounds.items():
            if p not in known:
                begin[p] = low
                if not lost:
                    notes.append(f"the partition {self._name(p)} is new and is read from its beginning")
            elif known[p] < low:
                lost.append(f"offsets {known[p]:,} to {low - 1:,} of {self._name(p)}, by retention")
                begin[p] = low
            elif known[p] > high:
                lost.append(f"{self._name(p)} ends at {high:,}, before the position {known[p]:,}")
                begin[p] = low
            else:
                begin[p] = known[p]
        if lost and lost_is_error and self._on_lost != "earliest":
            raise self._lost("; ".join(lost), "; ".join(lost))
        notes += [f"lost, and not read: {each}" for each in lost]
        return begin, tuple(notes), bool(lost or notes or is_new)

    def _is_there(self, name: str, topic: _Topic) -> bool:
        number = name.rpartition("/")[2]
        return number.isdigit() and int(number) in topic.bounds

    def _lost(self, what: str, lost: str) -> SourceLost:
        return SourceLost(
            f"records of the topic {self._topic} are gone before {self._table} had read them: {what}",
            fix="restore the topic, or set `on_lost: earliest` in the pipeline's source to go on at the"
            " oldest record that is left",
            source=self._topic,
            lost=lost,
        )

    def _first(self, topic: _Topic) -> dict[int, int]:
        """Return where the first range begins."""
        from confluent_kafka import TopicPartition

        if self._start in ("earliest", "latest"):
            index = 0 if self._start == "earliest" else 1
            return {p: bounds[index] for p, bounds in topic.bounds.items()}
        millis = int(dt.datetime.fromisoformat(self._start).timestamp() * 1_000)
        wanted = [TopicPartition(self._topic, p, millis) for p in topic.bounds]
        found = self._clients.answer(
            lambda: self._clients.consumer().offsets_for_times(wanted, timeout=ANSWER_SECONDS)
        )
        return {
            each.partition: topic.bounds[each.partition][1]
            if each.offset < 0
            else min(each.offset, topic.bounds[each.partition][1])
            for each in found
        }

    def _offsets(self, wanted: ReadRange) -> dict[int, tuple[int, int]]:
        return {
            int(name.rpartition("/")[2]): (first, wanted.end[name])
            for name, first in wanted.begin.items()
            if wanted.end[name] is not None and wanted.end[name] > first
        }

    def _read_partition(
        self, partition: int, first: int, last: int, writer: RangeWriter, most_bytes: int | None
    ) -> int:
        """Write the records of a partition up to an offset, and return the offset reached."""
        reached, gathered = first, GatheredRecords(last, self._values)
        for messages, ends in self._taken({partition: first}, SILENCE_SECONDS, wanted=last - first):
            is_over = not gathered.add(messages) or any((each.offset() or 0) >= last for each in ends)
            if not (is_over or gathered.is_complete or gathered.is_full):
                continue
            records = gathered.take()
            written = writer.add(records, most_bytes)
            if written:
                reached = records.offset(written - 1) + 1
            if written < len(records):
                return reached
            if reached >= last or is_over:
                return last
        raise self._clients.silent()

    def _taken(
        self, begin: Mapping[int, int], seconds: float, wanted: int | None = None
    ) -> Iterator[tuple[Sequence[Message], Sequence[Message]]]:
        """Yield records, and ends of partitions apart from them, until nothing comes for a while.

        Args:
            begin: The partitions, and the offset of each to begin at.
            seconds: How long nothing may come.
            wanted: Most records that are of use: the client waits for no more.

        Raises:
            SourceLost: an offset to begin at is not there any more.
        """
        from confluent_kafka import TopicPartition

        consumer = self._clients.consumer()
        consumer.assign([TopicPartition(self._topic, p, offset) for p, offset in begin.items()])
        try:
            until, at_once, left = time.monotonic() + seconds, _MOST_AT_ONCE, wanted
            while time.monotonic() < until:
                most = at_once if left is None else max(1, min(at_once, left))
                messages = self._clients.answer(lambda most=most: consumer.consume(most, timeout=0.2))
                if not messages:
                    continue
                ends = [each for each in messages if each.error() is not None]
                for each in ends:
                    self._check(each)
                yield [each for each in messages if each.error() is None] if ends else messages, ends
                until = time.monotonic() + seconds
                # The client hands over as many as it is asked for, however long they are.
                size = sum(map(len, messages)) / len(messages)
                at_once = int(min(_MOST_AT_ONCE, max(1, _BYTES_AT_ONCE / max(1.0, size))))
                left = None if left is None else left - len(messages)
        finally:
            consumer.unassign()

    def _check(self, message: Message) -> None:
        from confluent_kafka import KafkaError, KafkaException

        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            where = self._name(message.partition() or 0)
            raise self._lost(f"the offset to go on at in {where} is not there any more", where)
        raise self._clients.error(KafkaException(error))

    def _oldest(self, begin: Mapping[int, int]) -> dt.datetime | None:
        """Return the earliest time among the first unread record of each partition."""
        times: dict[int, int] = {}
        ended: set[int] = set()
        try:
            for messages, ends in self._taken(begin, _LOOK_SECONDS):
                ended |= {each.partition() or 0 for each in ends}
                for each in messages:
                    times.setdefault(each.partition() or 0, each.timestamp()[1])
                if begin.keys() <= times.keys() | ended:
                    break
        except SourceLost:
            return None
        known = [each for each in times.values() if each >= 0]
        return dt.datetime.fromtimestamp(min(known) / 1_000, dt.UTC) if known else None

    def _now(self) -> _Topic:
        """Return the topic as it is.

        Raises:
            SourceRefused: there is no such topic, or it must not be read.
        """
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self._clients.consumer()
        described = self._clients.metadata(ANSWER_SECONDS).topics[self._topic]
        if described.error is not None:
            raise self._clients.error(KafkaException(described.error))
        bounds = {}
        for partition in sorted(described.partitions):
            asked = TopicPartition(self._topic, partition)
            bounds[partition] = self._clients.answer(
                lambda asked=asked: consumer.get_watermark_offsets(asked, timeout=ANSWER_SECONDS)
            )
        return _Topic(topic_id=self._topic_id(), bounds=bounds)

    def _topic_id(self) -> str:
        """Return the topic's id; empty where brokers are too old to have one."""
        from confluent_kafka import TopicCollection

        names = TopicCollection([self._topic])
        described = self._clients.answer(
            lambda: self._clients.admin().describe_topics(names)[self._topic].result(ANSWER_SECONDS)
        )
        return "" if described.topic_id is None else str(described.topic_id)


def _shares(waiting: Mapping[int, int], most: int) -> dict[int, int]:
    """Share a number of records among partitions, as evenly as their records allow."""
    shares, left = {}, most
    for done, (partition, records) in enumerate(sorted(waiting.items(), key=lambda item: item[1])):
        share = min(records, -(-left // (len(waiting) - done))) if left > 0 else 0
        shares[partition] = share
        left -= share
    return shares
