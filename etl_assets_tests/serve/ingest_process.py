"""The step that ingests what the server stored, without Spark: in this process, or as the process
`python -m etl_assets_tests.serve.ingest_process`, of the installation that the environment names.
"""

from __future__ import annotations

import datetime as dt
from typing import NoReturn

from etl_assets.settings import load_settings
from etl_assets.steps.placing import place
from etl_assets.steps.step import ReadMode, StepArguments, StepContext, StepReport, step_of
from etl_assets_tests.serve.server_process import PIPELINE


def ingest() -> StepReport:
    """Ingest the journal of today, and of the day before if that has just ended."""
    settings, table = load_settings(), f"{PIPELINE}_source"
    context = StepContext(session=_no_session, domain=place(settings.placement(), table))
    today = dt.datetime.now(dt.UTC).date()
    step = step_of(table, StepArguments(settings=settings, context=context, mode=ReadMode.INCREMENTAL))
    return step.run([today - dt.timedelta(days=1), today])


def _no_session() -> NoReturn:
    raise AssertionError("a few events need no Spark")


if __name__ == "__main__":
    ingest()
