"""All environment variables of the platform, with meaning and default. No other module reads `os.environ`.

Exceptions are `PATH`, `JAVA_HOME` and the locale, as for Java itself, and the variables that the declaration
of a pipeline names. Settings that belong to a platform (domains, folders, limits) are in the platform file
(`settings/`). Variables hold only what differs between machines or is secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

_LIKE_OURS = re.compile(r"ETL_?ASSETS?_", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One environment variable: its meaning, and what holds when it is not set."""

    name: str
    meaning: str
    default: str

    def read(self, environ: Mapping[str, str] | None = None) -> str | None:
        """Return the value; None when it is unset or empty."""
        return (os.environ if environ is None else environ).get(self.name) or None


def value_of(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the value of a variable that a declaration of the user's names; None when it is unset or
    empty.
    """
    return (os.environ if environ is None else environ).get(name) or None


def with_default(variable: Variable, value: str) -> dict[str, str]:
    """Return the process's environment, with a value for a variable that is unset or empty."""
    return {**os.environ, variable.name: variable.read() or value}


def unknown(environ: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return environment variables that are named like the platform's but are not known.

    Each comes with the known name closest to it, if any.
    """
    known = [variable.name for variable in VARIABLES]
    names = [name for name in (os.environ if environ is None else environ) if _LIKE_OURS.match(name)]
    found = {name: get_close_matches(name, known, n=1, cutoff=0.8) for name in names if name not in known}
    return {name: near[0] if near else None for name, near in sorted(found.items())}


HOME = Variable(
    name="ETL_ASSETS_HOME",
    meaning="Folder that holds everything of this installation: tables, landing folder, Dagster instance.",
    default="`.etl-assets` in the current folder",
)
PLATFORM_FILE = Variable(
    name="ETL_ASSETS_PLATFORM_FILE",
    meaning="The platform file.",
    default="`platform.yaml` in the home folder, else the defaults of every setting",
)
JARS = Variable(
    name="ETL_ASSETS_JARS",
    meaning="Folder of the two Delta jars.",
    default="`etl-assets/jars` in the user's cache folder",
)
IVY_SETTINGS = Variable(
    name="ETL_ASSETS_IVY_SETTINGS",
    meaning="Set-up only: an Ivy settings file that names a private Maven mirror for Delta's jars.",
    default="unset: Ivy's own, the public Maven repository",
)
CACHE_HOME = Variable(
    name="XDG_CACHE_HOME", meaning="The user's cache folder, as on any Linux desktop.", default="`~/.cache`"
)
POSTGRES_URL = Variable(
    name="ETL_ASSETS_POSTGRES_URL",
    meaning="When set, Dagster keeps runs, events and schedules in this PostgreSQL database instead of"
    " SQLite.",
    default="unset: SQLite in the home folder",
)
DAGSTER_URL = Variable(
    name="ETL_ASSETS_DAGSTER_URL",
    meaning="Address of Dagster's web server, which the sensor `changed_pipelines` asks to load changed"
    " declarations.",
    default="that of the UI, under `etl-assets dev`; else unset",
)
URL = Variable(
    name="ETL_ASSETS_URL",
    meaning="Server of `etl-assets serve` that `etl-assets pipelines run`, `pause`, `resume`, `cancel`,"
    " `retry`, `runs` and `apply` are for.",
    default="unset: this home folder",
)
TOKEN = Variable(
    name="ETL_ASSETS_TOKEN",
    meaning="Token for that server.",
    default="unset",
)
SECRET_KEY = Variable(
    name="ETL_ASSETS_SECRET_KEY",
    meaning="Keys (Fernet), separated by commas, for secrets of connections over REST. The first one"
    " encrypts, all of them decrypt. All processes of an installation need them.",
    default="unset: such secrets are references only",
)
SPARK_MASTER = Variable(
    name="ETL_ASSETS_SPARK_MASTER",
    meaning="Overrides `spark.master` of the platform file (`local[4]`, `spark://host:7077`,"
    " `sc://host:15002`).",
    default="unset: the platform file's",
)
FAILPOINT = Variable(
    name="ETL_ASSETS_FAILPOINT",
    meaning="Tests only: the name of a failpoint at which the process kills itself with SIGKILL. After"
    " `pause:` it stops itself with SIGSTOP; after `hold:` only the thread stops.",
    default="unset: no failpoint",
)

VARIABLES = (
    HOME,
    PLATFORM_FILE,
    SPARK_MASTER,
    POSTGRES_URL,
    DAGSTER_URL,
    SECRET_KEY,
    URL,
    TOKEN,
    JARS,
    CACHE_HOME,
    IVY_SETTINGS,
    FAILPOINT,
)
