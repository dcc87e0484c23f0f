"""Wall clocks that a test sets, one for each process: a library for `LD_PRELOAD` (`jumping_clock.c`).

Everything in the process sees the jump: Python, SQLite and Delta's writer. Monotonic clocks do not jump.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def built_in(folder: Path) -> Path | None:
    """Compile the library; None without a C compiler, and then no clock jumps."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "jumping_clock.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def environment(offset: Path) -> dict[str, str]:
    """Return what a process needs in its environment, beside the library."""
    return {"CLOCK_OFFSET_FILE": str(offset)}


def set_clock(offset: Path, seconds: int) -> None:
    """Let the clock of the processes with this file be so many seconds ahead, or behind if negative."""
    hidden = offset.with_suffix(".new")
    hidden.write_text(str(seconds), "utf-8")
    hidden.rename(offset)
