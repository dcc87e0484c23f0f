"""What a process that reads PostgreSQL imports."""

from __future__ import annotations

import subprocess
import sys

READ = """
import sys
import adbc_driver_manager
from etl_assets.sources.sql.arrow_session import ArrowSession

try:
    with ArrowSession.opened("postgresql://127.0.0.1:1/nobody"):
        pass
except adbc_driver_manager.Error:
    print(*{"pandas", "polars"} & {*sys.modules})
"""


def test_reading_postgresql_imports_no_library_of_data_frames():
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
