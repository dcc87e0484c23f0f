"""Start options of an engine's JVMs: options and class path of the driver, and jars for executors.

Also the options of the small launcher JVM that assembles the driver's command. Belongs here: what the
platform sets, without overriding the user's settings. Does not belong here: Spark's settings (`spark.py`),
and the archive of classes (`etl_assets.runtime.classes`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from etl_assets.runtime.classes import archive_options
from etl_assets.runtime.jars import delta_jars
from etl_assets.runtime.java import Java
from etl_assets.settings import JvmStart

_LOG4J = Path(__file__).with_name("log4j2.properties").absolute()
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_OF_COLLECTOR = re.compile(r"-XX:(\+Use\w+GC\b|GC)")
_ARCHIVE = re.compile(r"-XX:(SharedArchiveFile|ArchiveClassesAtExit)=|-Xshare:")
_DEFAULT = re.compile(r"\s*(spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+)(.*\S)\s*")
_NOT_PLAIN = re.compile(r"[\s'\"\\]")
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Only the first of the JVM's two compilers, and the collector without threads.

In the first minute the second compiler costs more than it gains.
"""
_LEVEL = ("-XX:GCTimeRatio=3",)
"""Let G1 grow the heap later.

G1 takes more of the heap once its pauses reach a quarter of the time (6 to 10 % while the heap is small). By
default the limits are 8 % and 1 to 3 %: one full collection then grows the heap to ten times what is in use.
"""
_SMALL_INPUT_BYTES = 32 << 20
_FOR_EVERY_JVM = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


def starts_quickly(start: JvmStart, input_bytes: int | None) -> bool:
    """Return whether to start the JVM for a short run. A run whose input size is unknown may be long."""
    if start is JvmStart.AUTO:
        return input_bytes is not None and input_bytes <= _SMALL_INPUT_BYTES
    return start is JvmStart.QUICK


def jvm_settings(
    java: Java, config: Mapping[str, str], environ: Mapping[str, str], *, quick: bool
) -> dict[str, str]:
    """Return the settings with which Spark starts an engine's JVMs.

    They are the driver's options, and Delta's jars for driver and executors. Values that `config` or an
    administrator's `spark-defaults.conf` has for the same settings follow the platform's. Spark by itself
    takes one value of each, the session's before the file's.
    """
    given = {**_spark_defaults(environ), **config}
    jars = tuple(map(str, delta_jars()))
    ours = {
        "spark.driver.defaultJavaOptions": driver_options(java, given, environ, quick=quick),
        "spark.driver.extraClassPath": jars,
    }
    if not works_here(given):
        ours["spark.jars"] = jars  # the driver sends them
    return {key: _followed_by(given.get(key, ""), key, parts) for key, parts in ours.items()}


def driver_options(
    java: Java, config: Mapping[str, str], environ: Mapping[str, str], *, quick: bool
) -> tuple[str, ...]:
    """Return the options of the driver's JVM.

    The user's own (`spark.driver.extraJavaOptions`) follow them and so take precedence. A JVM refuses two of
    the options if given twice, the collector and the archive of classes: they are left out where the user
    sets them.
    """
    of_driver = (value for key, value in config.items() if key.startswith("spark.driver."))
    given = " ".join([*of_driver, _for_every_jvm(environ)])
    options = [f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"]
    if not _ARCHIVE.search(given):
        options += archive_options(java, delta_jars())
    if works_here(config):
        options += _unless_given(_QUICK if quick else _LEVEL, given)
    return tuple(options)


def works_here(config: Mapping[str, str]) -> bool:
    """Return whether the driver's JVM is also the one that works: no cluster and no Connect server."""
    return "spark.remote" not in config and config.get("spark.master", "local").startswith("local")


def launcher_options(environ: Mapping[str, str]) -> str:
    """Return the options of the launcher JVM, which lives for half a second before the driver's."""
    return " ".join(_unless_given(_QUICK, _for_every_jvm(environ)))


def option_string(options: Iterable[str]) -> str:
    """Join options into one setting. Spark's launcher splits it at spaces outside quotes."""
    return " ".join(_quoted(option) if _NOT_PLAIN.search(option) else option for option in options)


def _followed_by(theirs: str, key: str, ours: tuple[str, ...]) -> str:
    if key.endswith("JavaOptions"):
        return f"{option_string(ours)} {theirs}".strip()
    separator = "," if key == "spark.jars" else os.pathsep
    return separator.join([*ours, *(part for part in theirs.split(separator) if part and part not in ours)])


def _spark_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an administrator's settings for all Spark started from this machine."""
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    if not folder:
        return {}
    try:
        lines = Path(folder, "spark-defaults.conf").read_text("utf-8", errors="replace").splitlines()
    except OSError:  # missing, or not readable for this user: Spark cannot read it either
        return {}
    return {found[1]: found[2] for line in lines if (found := _DEFAULT.fullmatch(line))}


def _quoted(option: str) -> str:
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _for_every_jvm(environ: Mapping[str, str]) -> str:
    return " ".join(environ.get(name, "") for name in _FOR_EVERY_JVM)


def _unless_given(options: Iterable[str], given: str) -> list[str]:
    """Leave out the options that are given, and all of a collector's if another collector is.

    The user's options hold, whatever their source.
    """
    theirs = _COLLECTOR.search(given)
    return [
        each
        for each in options
        if each.partition("=")[0] not in given and not (theirs and _OF_COLLECTOR.match(each))
    ]
