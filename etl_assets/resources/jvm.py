"""How the JVMs of a session are started: options of the driver, and of the small JVM before it that puts its command together.

Belongs here: the platform's options, and that those of the user win. Does not belong here: Spark's settings (`spark.py`),
and what the archive of classes is (`etl_assets.runtime.classes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from etl_assets.runtime.classes import archive_options
from etl_assets.runtime.jars import delta_jars
from etl_assets.runtime.java import Java
from etl_assets.settings import JvmStart

_LOG4J = Path(__file__).with_name("log4j2.properties").absolute()
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_ARCHIVE = re.compile(r"-XX:(SharedArchiveFile|ArchiveClassesAtExit)=|-Xshare:")
_NOT_PLAIN = re.compile(r"[\s'\"\\]")
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""The first of the JVM's two compilers only, and the collector without threads: in the first minute the second compiler takes
more than it gives."""
_SMALL_INPUT_BYTES = 32 << 20
_FOR_EVERY_JVM = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


def starts_quickly(start: JvmStart, input_bytes: int | None) -> bool:
    """Whether a JVM is to be started for a short run; one whose input is not known may be long."""
    if start is JvmStart.AUTO:
        return input_bytes is not None and input_bytes <= _SMALL_INPUT_BYTES
    return start is JvmStart.QUICK


def driver_options(
    java: Java, config: Mapping[str, str], environ: Mapping[str, str], *, quick: bool
) -> tuple[str, ...]:
    """Options of the driver's JVM. The user's (`spark.driver.extraJavaOptions`) come after them, so that theirs hold.

    Two that a JVM refuses to have twice, the collector and the archive of classes, are left out where the user has one.
    """
    given = " ".join([config.get("spark.driver.extraJavaOptions", ""), _for_every_jvm(environ)])
    options = [f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"]
    if not config.get("spark.master", "local").startswith("local"):
        return tuple(options)
    if not _ARCHIVE.search(given):
        options += archive_options(java, delta_jars())
    if quick:
        options += _unless_given(_QUICK, given)
    return tuple(options)


def launcher_options(environ: Mapping[str, str]) -> str:
    """Options of the small JVM before the driver's, which lives for half a second."""
    return " ".join(_unless_given(_QUICK, _for_every_jvm(environ)))


def option_string(options: Iterable[str]) -> str:
    """Options as one setting, which Spark's launcher takes apart at spaces that are not within quotes."""
    return " ".join(_quoted(option) if _NOT_PLAIN.search(option) else option for option in options)


def _quoted(option: str) -> str:
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _for_every_jvm(environ: Mapping[str, str]) -> str:
    return " ".join(environ.get(name, "") for name in _FOR_EVERY_JVM)


def _unless_given(options: Iterable[str], given: str) -> list[str]:
    """Without a collector if there is one."""
    return [each for each in options if not (_COLLECTOR.search(each) and _COLLECTOR.search(given))]
