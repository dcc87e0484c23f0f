"""What the kill test of declared pipelines starts in processes of their own: a load that ends at a failpoint."""

from __future__ import annotations

import os
from pathlib import Path

from etl_assets.pipelines.spec import PipelineSpec
from etl_assets_tests.kill.dying_run import SURVIVED, Gateway, attached_session, own_session
from etl_assets_tests.reference.declared_pipeline import Declared


def load(root: Path, spec: PipelineSpec, failpoint: str, gateway: Gateway | None) -> None:
    """Load what is new, and die at the failpoint."""
    os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
    session = own_session() if gateway is None else attached_session(gateway)
    Declared(root=root, session=lambda: session, spec=spec).load()
    os._exit(SURVIVED)
