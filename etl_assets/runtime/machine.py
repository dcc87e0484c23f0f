"""Set up a machine for Spark, and check whether it is set up.

Belongs here: the parts, their order, and the line that reports them as ready. Does not belong here: each part
(`java.py`, `jars.py`, `classes.py`), and the commands (`__main__.py`, `etl_assets.cli.setup`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from etl_assets.runtime.classes import ensure_archive
from etl_assets.runtime.jars import delta_jars, ensure_jars
from etl_assets.runtime.java import Java, ensure_java, find_java


def set_up(say: Callable[[str], None]) -> str:
    """Install Java, Delta's jars and the class archive where they are missing.

    Returns:
        A line that reports what is installed.

    Raises:
        RuntimeMissing: a part is missing and could not, or may not, be installed.
    """
    java = ensure_java(say)
    jars = ensure_jars(java, say)
    ensure_archive(java, jars, say)
    return _ready(java, jars)


def look() -> str:
    """Return a line about what is installed; change nothing.

    Raises:
        RuntimeMissing: Java or a jar is missing or is not the required one.
    """
    return _ready(find_java(), delta_jars(thorough=True))


def _ready(java: Java, jars: tuple[Path, ...]) -> str:
    return f"ready: Java {java.release} in {java.home}, Delta's {len(jars)} jars in {jars[0].parent}"
