"""An installation for each test of the UI."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from etl_assets_tests.e2e.installation import FIRST


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An installation with an empty landing folder."""
    home = tmp_path / "home"
    home.mkdir()
    settings = {
        "start_date": FIRST,
        "landing": {"settle_seconds": 0},
        "spark": {"config": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}},
    }
    (home / "platform.yaml").write_text(yaml.safe_dump(settings))
    return home
