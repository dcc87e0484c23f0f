"""The histories of records by an id, in several pipelines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from etl_assets.errors import NotFound

if TYPE_CHECKING:
    from etl_assets.observability.history import History
    from etl_assets.settings import Settings


def histories_of(
    settings: Settings, record_id: str, names: Collection[str] | None = None
) -> dict[str, History]:
    """Return the histories of records of an id, by the names of their pipelines.

    Args:
        settings: The platform file.
        record_id: The id.
        names: The pipelines to look in; None: all.

    Raises:
        NotFound: none of the pipelines has the id.
    """
    finders = {each.name: each.history for each in settings.catalog().pipelines if each.history is not None}
    histories = {
        name: find(settings, record_id) for name, find in finders.items() if names is None or name in names
    }
    found = {name: history for name, history in histories.items() if history is not None}
    if not found:
        raise NotFound(
            f"no record {record_id!r} has been read",
            fix="check the id, and that the day it arrived on has been materialized; a record that is no JSON"
            " has no id: look for it with `etl-assets dead-letters list`",
            record_id=record_id,
        )
    return found


def json_value(value: Any) -> str:
    """Return a value of a history that JSON has no type for."""
    return value.isoformat() if isinstance(value, dt.date) else str(value)
