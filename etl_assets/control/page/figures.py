"""Lag and open dead letters of pipelines, for the list: as they were some seconds ago.

Reading them opens every table. So they are read beside the requests, once for all viewers, and a page shows
what is known.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from etl_assets.errors import EtlAssetsError
from etl_assets.observability.asset_lag import AssetLag, table_lag
from etl_assets.observability.dead_letters import count_open
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.service import Service

logger = logging.getLogger("etl_assets.serve")
REFRESH_SECONDS = 10.0
FIRST_WAIT_SECONDS = 2.0
"""How long the first viewer of a pipeline waits for its figures, before the page comes without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFigures:
    """Figures of a pipeline.

    Attributes:
        lag_rows: Rows that its tables lack of their inputs; None if they cannot say.
        lag_seconds: Age of the oldest of them; None if it is not known.
        open_dead_letters: Dead letters of its stages and sinks that wait for an operator.
    """

    lag_rows: int | None
    lag_seconds: float | None
    open_dead_letters: int


class KnownFigures:
    """The figures of pipelines that were shown lately."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, ShownFigures]] = {}
        self._readings: set[asyncio.Task[None]] = set()

    async def of(self, service: Service, names: Collection[str]) -> Mapping[str, ShownFigures]:
        """Return what is known of pipelines, and let older figures be read again."""
        now = time.monotonic()
        old = tuple(name for name in names if now - self._read_at(name) > REFRESH_SECONDS)
        if old:
            reading = asyncio.create_task(self._read(service, old))
            self._readings.add(reading)  # the loop alone would not keep it
            reading.add_done_callback(self._readings.discard)
            if any(name not in self._known for name in old):
                await asyncio.wait([reading], timeout=FIRST_WAIT_SECONDS)
        return {name: self._known[name][1] for name in names if name in self._known}

    def _read_at(self, name: str) -> float:
        return self._known[name][0] if name in self._known else float("-inf")

    async def _read(self, service: Service, names: tuple[str, ...]) -> None:
        try:
            found = await service.reads.read(("figures", names), lambda: read_figures(service, names))
        except (ProblemDetails, EtlAssetsError) as error:
            logger.warning("the figures of the status page cannot be read: %s", error)
            return  # the next page asks again
        now = time.monotonic()
        self._known |= {name: (now, figures) for name, figures in found.items()}


def read_figures(service: Service, names: Collection[str]) -> dict[str, ShownFigures]:
    """Read the figures of pipelines from their tables' logs; those without tables have none."""
    domain, now = service.settings.placement().reader(), service.clock()
    wanted = [each for each in domain.catalog.pipelines if each.name in names]
    letters = count_open(domain) if wanted else Counter()
    found = {}
    for pipeline in wanted:
        lags = [table_lag(stage, domain, now) for stage in pipeline.stages if stage.inputs]
        found[pipeline.name] = _figures(pipeline, [lag for lag in lags if lag is not None], letters)
    return found


def _figures(pipeline: Pipeline, lags: Iterable[AssetLag], letters: Counter[str]) -> ShownFigures:
    rows = [lag.rows for lag in lags if lag.rows is not None]
    seconds = [lag.seconds for lag in lags if lag.seconds is not None]
    stages = {each.name_in_rejects for each in pipeline.stages if each.rejects is not None}
    return ShownFigures(
        lag_rows=sum(rows) if rows else None,
        lag_seconds=max(seconds, default=None),
        open_dead_letters=sum(letters[stage] for stage in stages),
    )
