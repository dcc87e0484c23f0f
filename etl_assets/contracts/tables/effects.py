"""effects: effects of sinks outside of the platform, done or reserved, one row per key."""

from __future__ import annotations

from enum import StrEnum

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import AtLeast, OneOf
from etl_assets.contracts.tables.recurring_columns import BATCH_ID, identifier, label


class EffectState(StrEnum):
    """State of an effect's lifecycle.

    RESERVED: an owner may be doing it. Set by `reserve`.
    COMPLETED: it was done, and the row holds its result. Set by `complete`; never changes.
    """

    RESERVED = "reserved"
    COMPLETED = "completed"


EFFECTS = TableContract(
    name="effects",
    description=(
        "Effects of sinks outside of the platform: who is at it, or what came of it. The store that keeps a"
        " sink from doing twice what it did once, wherever it runs next."
    ),
    columns=(
        label("sink", "The sink."),
        identifier("key", "What names the effect within its sink."),
        label("fingerprint", "Hash of what is to be done: one key stands for one content."),
        Column("state", "STRING", "Where it is in its life.", rules=(OneOf(tuple(EffectState)),)),
        Column("attempt", "INT", "1, and 1 more for each time it was reserved again.", rules=(AtLeast(1),)),
        label("token", "What tells this reservation from every other one."),
        label("owner_domain", "Failure domain of the process that reserved it."),
        Column("owner_epoch", "STRING", "Fence epoch it was reserved under; empty with one domain."),
        label("owner_process", "Machine, process id and start time of the process that reserved it."),
        Column(
            "result",
            "STRING",
            "What came of it, as JSON; of a delivery that is under way, what is done of it.",
            nullable=True,
        ),
        Column(
            "reserved_at", "TIMESTAMP", "When it was reserved, by the owner's clock (UTC). Only for people."
        ),
        Column(
            "completed_at",
            "TIMESTAMP",
            "When it was completed, by the owner's clock (UTC). Only for people.",
            nullable=True,
        ),
        BATCH_ID,
    ),
    merge_key=("sink", "key"),
    ordering="batch_id",
)
