"""`etl-assets produce`: send lines of JSON to a Kafka topic, so that each counts once.

Belongs here: options and messages. Does not belong here: sending (`sinks/kafka/`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etl_assets.cli.dead_letter_options import JSON

if TYPE_CHECKING:
    from etl_assets.settings import Settings
    from etl_assets.sinks.kafka.open_producer import Target
    from etl_assets.sinks.kafka.produced_lines import Line, LineFields
    from etl_assets.sinks.kafka.producer import KafkaProducer


@click.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets produce payments payments.jsonl\n"
        "  etl-assets produce --connection events --topic payments payments.jsonl\n"
        "  tail -n +1 -f log.jsonl | etl-assets produce payments - --input-id log-of-2026-01-31\n"
    )
)
@click.argument("arguments", metavar="[PIPELINE] FILE|-", nargs=-1, required=True)
@click.option("--connection", metavar="NAME", help="Without PIPELINE: a connection of type kafka.")
@click.option("--topic", metavar="NAME", help="Without PIPELINE: the topic.")
@click.option("--id-field", metavar="NAME", help="Field with the id; a record without it gets the event id.")
@click.option("--key-field", metavar="NAME", help="Field whose value is the record's key.")
@click.option(
    "--input-id",
    metavar="TEXT",
    help="Identifies the input: by default the SHA-256 of the file. The same input sent again counts once.",
)
@click.option(
    "--records-per-transaction",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="Most records of one transaction.",
)
@JSON
def produce(
    *,
    arguments: tuple[str, ...],
    connection: str | None,
    topic: str | None,
    id_field: str | None,
    key_field: str | None,
    input_id: str | None,
    records_per_transaction: int,
    as_json: bool,
) -> None:
    """Send the lines of FILE, JSON objects, to the topic that PIPELINE reads; `-` is standard input.

    Records are sent in transactions, each with its event id and W3C trace context in headers. After an error
    or a kill, send the same input again: its records have the same ids, and count once.
    """
    from etl_assets.settings import load_settings
    from etl_assets.sinks.kafka.open_producer import open_producer
    from etl_assets.sinks.kafka.produced_lines import LineFields

    settings = load_settings()
    target, name = _target(arguments, connection, topic, settings)
    fields = LineFields(id_field=id_field or target.id_field, key_field=key_field)
    if name == "-":
        if not input_id:
            raise click.UsageError("standard input needs --input-id: it identifies what is sent")
        digest, size = "", 0
    else:
        from etl_assets.sinks.kafka.produced_lines import check_file

        digest, size, _ = check_file(_file(name), fields)
        input_id = input_id or digest
    producer = open_producer(
        target, settings, input_id=input_id, records_per_transaction=records_per_transaction
    )
    with producer:
        for line in _lines(name, fields, producer, digest=digest, size=size):
            _send(line, fields, producer)
    if as_json:
        figures = {"topic": target.topic, "input_id": input_id, "records": producer.sent}
        click.echo(json.dumps(figures | {"transactions": producer.transactions}))
        return
    click.echo(f"sent {producer.sent:,} records to {target.topic}; the input is {input_id}")


def _target(
    arguments: tuple[str, ...], connection: str | None, topic: str | None, settings: Settings
) -> tuple[Target, str]:
    from etl_assets.sinks.kafka.open_producer import Target, target_of_pipeline

    if bool(connection) != bool(topic):
        raise click.UsageError("--connection and --topic go together")
    if len(arguments) != (1 if connection else 2):
        raise click.UsageError("give PIPELINE and FILE, or --connection, --topic and FILE")
    if connection and topic:
        return Target(connection=connection, topic=topic), arguments[0]
    return target_of_pipeline(arguments[0], settings), arguments[1]


def _file(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise click.BadParameter(f"{name} is no file", param_hint="FILE")
    return path


def _lines(
    name: str, fields: LineFields, producer: KafkaProducer, *, digest: str, size: int
) -> Iterator[Line]:
    from etl_assets.sinks.kafka.produced_lines import file_lines, stream_lines

    if name != "-":
        return file_lines(Path(name), fields, digest=digest, size=size)
    return stream_lines(0, fields, idle=producer.commit_if_due)


def _send(line: Line, fields: LineFields, producer: KafkaProducer) -> None:
    from etl_assets.sinks.kafka.produced_ids import event_id_of

    event_id, value = line.event_id, line.value
    if fields.id_field and event_id is None:
        event_id = event_id_of(producer.input_id, producer.sent)
        value = line.with_id(fields.id_field, event_id)
    producer.send(value, key=line.key, event_id=event_id)
