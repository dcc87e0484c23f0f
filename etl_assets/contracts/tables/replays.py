"""replays: dead letters submitted again, as received or corrected."""

from __future__ import annotations

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.reasons import RecordEncoding
from etl_assets.contracts.rules import AtLeast, OneOf
from etl_assets.contracts.tables.recurring_columns import COMMIT_STAMPS, identifier, label

REPLAYS = TableContract(
    name="replays",
    description=(
        "Every dead letter that was handed in again, with what is to be judged now. Of several of one attempt"
        " the last one counts."
    ),
    columns=(
        identifier(
            "dead_letter_id",
            "Id of the dead letter; a replay keeps it.",
            derived_from=("dead_letters.dead_letter_id",),
        ),
        Column("attempt", "INT", "Which attempt of the letter it is, from 2.", rules=(AtLeast(1),)),
        label("stage", "Stage that is to judge it."),
        Column(
            "content",
            "STRING",
            "One line: the record for ingest; for normalize a JSON object of `event_id` and the corrected"
            " `payload`.",
        ),
        Column(
            "content_encoding",
            "STRING",
            "How `content` is written: as it came, or in base64 because it was not UTF-8.",
            rules=(OneOf(tuple(RecordEncoding)),),
        ),
        label("domain", "Failure domain in which it was handed in."),
        Column("handed_in_at", "TIMESTAMP", "When, by the platform's clock (UTC)."),
        *COMMIT_STAMPS,
    ),
    merge_key=("dead_letter_id", "attempt", "batch_id"),
    delta_partition=("partition_date",),
    append_only=True,
)
