"""Replays of rows that the target of a sink rejected: their requests, and their results. No JVM, no Dagster.

The next delivery takes up a request: it delivers the row that the table has then, and leaves a result in the
sink's table of rejects.

Belongs here: requests from dead letters, and results. Does not belong here: submitting them together with
those to sources (`submit_replays.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.key_values import key_values, parse_row
from etl_assets.errors import InputError
from etl_assets.observability.rows import find_rows
from etl_assets.processes import user_and_host
from etl_assets.sinks.replay_requests import content_of_request
from etl_assets.sources.landing import REPLAYS
from etl_assets.sources.replays import Replay, row_again, source_position
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.observability.dead_letters import DeadLetter
    from etl_assets.pipelines.catalog import Catalog
    from etl_assets.pipelines.stage import Stage
    from etl_assets.placement.domains import FailureDomain

_COLUMNS = ("source_position", "outcome", "reason", "error", "failed_at", "domain")


def request_of(letter: DeadLetter, attempt: int, stage: Stage, catalog: Catalog) -> Replay:
    """Return the request to deliver the row of a dead letter again.

    Args:
        letter: The dead letter, with its record.
        attempt: Number of the attempt.
        stage: The stage that delivers to the sink.
        catalog: The catalog, which has the table that the sink follows.

    Raises:
        InputError: the record does not have the table's keys of today.
    """
    contract = catalog.table(stage.inputs[0])
    try:
        row = parse_row(letter.record_bytes())
        key_values(row, contract)
    except ValueError as error:
        raise InputError(
            f"the dead letter {letter.dead_letter_id[:12]} lacks keys of {contract.name}: {error}",
            fix=f"materialize {stage.name} in the Dagster UI, which delivers every row, and discard the dead"
            " letter",
            dead_letter_id=letter.dead_letter_id,
        ) from error
    keys = {name: row[name] for name in contract.merge_key}
    content = content_of_request(keys, letter.failed_at, user_and_host())
    return row_again(letter.partition_date, letter.dead_letter_id, attempt, content, stage=stage.name)


def results_of(
    domain: FailureDomain, stage: Stage, attempts: Collection[tuple[DeadLetter, int]]
) -> Mapping[str, dict[str, Any]]:
    """Return the results of attempts that deliveries have taken up, by the id of the dead letter.

    Args:
        domain: Failure domain to read the table of rejects in.
        stage: The stage that delivers to the sink.
        attempts: Dead letters, each with the number of an attempt.
    """
    assert stage.rejects is not None  # a target may reject rows
    by_position = {
        source_position(letter.partition_date, letter.dead_letter_id, attempt): letter.dead_letter_id
        for letter, attempt in attempts
    }
    where: dict[str, Collection[Any]] = {
        "partition_date": {letter.partition_date for letter, _ in attempts},
        "source": [REPLAYS],
        "source_position": by_position,
    }
    rows = find_rows(platform_table(stage.rejects.name, domain), columns=_COLUMNS, where=where)
    # An attempt that was interrupted may have been rejected first, and accepted by the step that repeated it.
    ordered = sorted(rows, key=lambda row: row["failed_at"])
    return {by_position[row["source_position"]]: row for row in ordered}
