"""What the kill tests of declared pipelines start in processes of their own: steps that end at a
failpoint.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.settings import load_settings
from etl_assets.steps.step import ReadMode, StepArguments, StepContext, StepReport
from etl_assets_tests.kill.dying_run import SURVIVED, Gateway, attached_session, own_session
from etl_assets_tests.reference.declared_pipeline import DAY, Declared


def load(root: Path, spec: PipelineSpec, failpoint: str, gateway: Gateway | None) -> None:
    """Load what is new, and die at the failpoint."""
    os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
    session = own_session() if gateway is None else attached_session(gateway)
    Declared(root=root, session=lambda: session, spec=spec).load()
    os._exit(SURVIVED)


def ingest(home: Path, table: str, failpoint: str, gateway: Gateway | None) -> None:
    """Ingest the files of an installation's declared pipeline, and die at the failpoint."""
    os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
    session = own_session() if gateway is None else attached_session(gateway)
    accept_files(home, table, session)
    os._exit(SURVIVED)


def accept_files(home: Path, table: str, session: Any) -> StepReport:
    """Run the step that ingests the files of an installation's declared pipeline."""
    settings = load_settings({"ETL_ASSETS_HOME": str(home)})
    domain = settings.placement().reader()
    context = StepContext(
        session=lambda: session, domain=domain, clock=lambda: dt.datetime.now(dt.UTC), lock_wait_seconds=30
    )
    arguments = StepArguments(settings=settings, context=context, mode=ReadMode.INCREMENTAL)
    return domain.catalog.stage(table).build_step(arguments).run([DAY])
