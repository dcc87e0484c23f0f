"""One look of the worker at the source of a pipeline: what is unread, and what is logged about it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from etl_assets.observability.pending import watch_source
from etl_assets.steps.placing import once_led, place
from etl_assets.steps.step import logger

if TYPE_CHECKING:
    from etl_assets.pipelines.catalog import Catalog
    from etl_assets.settings import Settings
    from etl_assets.sources.unread_days import Watched
    from etl_assets.worker.feed import Feed

MAX_DAYS_PER_LOOK = 1_000


def look_at_source(feed: Feed, settings: Settings, catalog: Catalog) -> Watched:
    """Find what is unread of a pipeline's source, and keep in the feed how far it was listed.

    Args:
        feed: The pipeline.
        settings: The platform file.
        catalog: The pipelines of the installation, as the worker follows them.

    Raises:
        EtlAssetsError, OSError: the source cannot be looked at now.
    """
    source = feed.pipeline.path[0]
    placement = settings.placement(catalog)
    found = once_led(
        placement,
        lambda: watch_source(
            source,
            settings,
            feed.cursor,
            now=dt.datetime.now(dt.UTC),
            most_days=MAX_DAYS_PER_LOOK,
            domain=place(placement, source.name),
        ),
    )
    feed.cursor, feed.found = found.cursor, found
    feed.note_copy(found.lag is not None and found.lag.is_copy)
    for day, why in found.unreadable.items():
        if feed.unreadable.get(day) != why:
            logger.warning("%s: %s: %s", source.name, day, why)
    for name in found.changed:
        logger.warning("%s changed after being read and is read again", name)
    feed.unreadable = found.unreadable
    return found
