"""Rounds that keep the snapshots of what came over REST up to date, beside the requests of a server.

Changes by servers of other machines reach this home folder by them, and so do those whose snapshot was not
written because the process died or the disk was full.
"""

from __future__ import annotations

import asyncio
import logging

from etl_assets.control.control_plane import ControlPlane
from etl_assets.errors import EtlAssetsError

logger = logging.getLogger("etl_assets.serve")
ROUND_SECONDS = 5.0


async def keep_refreshing(control: ControlPlane, round_seconds: float = ROUND_SECONDS) -> None:
    """Refresh the snapshot, round by round. While the store is down the last one stays."""
    failing = False
    while True:
        if control.is_in_use:
            try:
                # Connections first: declarations name them.
                await asyncio.to_thread(lambda: control.connections.refresh())
                await asyncio.to_thread(lambda: control.definitions.refresh())
                failing = False
            except EtlAssetsError as error:
                if not failing:
                    logger.warning("the last known declarations over REST stay in use: %s", error)
                failing = True
        await asyncio.sleep(round_seconds)
