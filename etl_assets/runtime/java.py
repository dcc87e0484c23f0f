"""The Java runtime that Spark runs on: finding one, and installing one where that is allowed.

Belongs here: the places where a Java may be, the parsing of its version, and the packages that install one.
Does not belong here: the options of the JVM, which are Spark's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from etl_assets.errors import RuntimeMissing
from etl_assets.runtime import system_packages

OLDEST_VERSION = 17
"""Spark 4 runs on Java 17 and newer."""

APT_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
"""In order of preference; no release of Debian or Ubuntu has all of them."""

PACKAGES = {
    "apt-get": APT_PACKAGES[0],
    "dnf": "java-21-openjdk-headless",
    "zypper": "java-21-openjdk-headless",
    "pacman": "jre21-openjdk-headless",
    "apk": "openjdk17-jre-headless",
    "brew": "openjdk@17",
}

USUAL_PLACES = (
    "usr/lib/jvm/*/bin/java",
    "usr/java/*/bin/java",
    "opt/java/*/bin/java",
    "Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
    "opt/homebrew/opt/openjdk*/bin/java",
    "usr/local/opt/openjdk*/bin/java",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime of known version.

    Attributes:
        home: Value of `JAVA_HOME` with which Spark starts this runtime.
        version: Feature release: 8, 11, 17 ...
        release: The full version, to show.
    """

    home: Path
    version: int
    release: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the first Java that is new enough: `JAVA_HOME`, then `PATH`, then the usual places.

    Costs one short JVM start (about 0.1 s), so call it once per session, not per table.

    Raises:
        RuntimeMissing: no Java was found, or only older ones; carries `found`, their releases.
    """
    too_old = []
    for executable in _candidates(os.environ if environ is None else environ):
        java = ask_version(executable)
        if java is None:
            continue
        if java.version >= OLDEST_VERSION:
            return java
        too_old.append(f"{java.release} in {java.home}")
    found = f" (found only {', '.join(too_old)})" if too_old else ""
    raise RuntimeMissing(
        f"no Java {OLDEST_VERSION} or newer was found{found}, and Spark needs one",
        fix=f"{_advice()}, or set JAVA_HOME to the folder of one",
        found=tuple(too_old),
    )


def ensure_java(say: Callable[[str], None], environ: Mapping[str, str] | None = None) -> Java:
    """Return `find_java`'s result. If there is none, install Java and search again.

    Raises:
        RuntimeMissing: there is no Java and it could not, or may not, be installed.
    """
    try:
        return find_java(environ)
    except RuntimeMissing:
        if not system_packages.install(APT_PACKAGES, say):
            raise
        return find_java(environ)


def _advice() -> str:
    command = system_packages.install_command(PACKAGES)
    return f"run `{command}`" if command else f"install a Java {OLDEST_VERSION} runtime"


def ask_version(executable: Path) -> Java | None:
    """Start a Java once and parse its properties; None if it does not work."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_properties(answer.stderr) if answer.returncode == 0 else None


def parse_properties(text: str) -> Java | None:
    """Parse the output of `java -XshowSettings:properties -version`; None without a readable version.

    `java.specification.version` is `1.8` for Java 8 and the feature release alone from 9 on.
    """
    pairs = (line.partition(" = ") for line in text.splitlines())
    properties = {name.strip(): value.strip() for name, _, value in pairs}
    home, specification = properties.get("java.home"), properties.get("java.specification.version", "")
    feature = specification.removeprefix("1.")
    if not home or not feature.isdecimal():
        return None
    return Java(home=Path(home), version=int(feature), release=properties.get("java.version", specification))


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    seen = set()
    for path in _places(environ):
        actual = path.resolve()
        if actual not in seen and os.access(actual, os.X_OK):
            seen.add(actual)
            yield path


def _places(environ: Mapping[str, str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield Path(found)
    for pattern in USUAL_PLACES:
        yield from sorted(Path("/").glob(pattern))
