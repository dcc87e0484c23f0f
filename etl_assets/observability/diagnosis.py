"""All checks of the machine and the installation, each after the checks it depends on."""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets import environment
from etl_assets.errors import SettingsError
from etl_assets.observability import connection_slot_checks, control_checks, lag_checks, log_checks
from etl_assets.observability import installation_checks as installation
from etl_assets.observability import machine_checks as machine
from etl_assets.observability.findings import Finding, answer, fail, ok, warn
from etl_assets.settings import home_folder, load_installation, load_settings, platform_file

if TYPE_CHECKING:
    from etl_assets.settings import Settings

SETTINGS = "settings"
_SECRET = environment.POSTGRES_URL


def diagnose(environ: Mapping[str, str] | None = None) -> list[Finding]:
    """Run all checks. Works without Java and with broken settings, and changes nothing."""
    settings, finding = _settings(environ)
    home = home_folder(environ)
    roots = (
        []
        if settings is None
        else [(f"domain {each.name}", each.root) for each in settings.placement().domains]
    )
    folders = [("home", home), *roots]
    doubts = () if settings is None else settings.doubts
    findings = [
        finding,
        *(warn(SETTINGS, doubt, "see docs/operations.md, Failure domains") for doubt in doubts),
    ]
    findings += answer(SETTINGS, lambda: _variables(environ))
    findings += answer(installation.INSTALLATION, lambda: _there(environ)) if settings is not None else ()
    findings += [*answer(machine.PACKAGES, machine.check_packages), *_spark(settings)]
    findings += answer(
        machine.DISK,
        lambda: machine.check_disk([*folders, ("Spark's temporary files", Path(tempfile.gettempdir()))]),
    )
    findings += answer(installation.WRITING, lambda: installation.check_writing(folders))
    findings += answer(
        machine.CLOCK, lambda: machine.check_clock((roots[0][1] if roots else home) / "tables")
    )
    findings += answer(installation.SERVERS, lambda: installation.check_servers(home))
    if settings is not None:
        findings += _installation(settings)
    return findings


def _settings(environ: Mapping[str, str] | None) -> tuple[Settings | None, Finding]:
    file = platform_file(environ)
    variables = ", ".join(
        variable.name if variable is _SECRET else f"{variable.name}={value}"
        for variable in environment.VARIABLES
        if (value := variable.read(environ)) is not None
    )
    where = (
        f"{file}{'' if os.access(file, os.F_OK) else ' (not there: defaults)'}; environment:"
        f" {variables or 'nothing set'}"
    )
    try:
        return load_settings(environ), ok(SETTINGS, where)
    except SettingsError as error:
        return None, fail(SETTINGS, error.message, error.fix)
    except Exception as error:  # noqa: BLE001 - the other checks must run whatever the file holds
        return None, fail(SETTINGS, f"{file}: {error}", "fix the file, see docs/settings.md")


def _variables(environ: Mapping[str, str] | None) -> Iterator[Finding]:
    """Yield a warning for each environment variable that resembles the platform's but is never read."""
    for name, near in environment.unknown(environ).items():
        known = ", ".join(variable.name for variable in environment.VARIABLES)
        yield warn(
            SETTINGS,
            f"the environment variable {name} is not known, and nothing reads it",
            f"did you mean {near}?" if near else f"unset it, or name one of {known}",
        )


def _there(environ: Mapping[str, str] | None) -> Iterator[Finding]:
    """Yield the installation's home folder.

    A missing installation (NoInstallation) becomes a failed finding.
    """
    yield ok(installation.INSTALLATION, str(load_installation(environ).home))


def _spark(settings: Settings | None) -> list[Finding]:
    """Check Java and the jars. Spark on a remote server needs neither on this machine."""
    if settings is not None and settings.spark.master.startswith("sc://"):
        return [ok(machine.JAVA, f"not needed: Spark is reached at {settings.spark.master}")]
    return [*answer(machine.JAVA, machine.check_java), *answer(machine.JARS, machine.check_jars)]


def _installation(settings: Settings) -> list[Finding]:
    today = dt.datetime.now(dt.UTC).date()
    findings = []
    if settings.catalog().reads_landing:
        findings += answer(installation.LANDING_FOLDER, lambda: installation.check_landing(settings, today))
    findings += answer(installation.PIPELINES, lambda: installation.check_pipelines(settings))
    for domain in settings.placement().domains:
        locks = domain.lock_path("any").parent
        findings += answer(installation.LOCKS, lambda locks=locks: installation.check_locks(locks))
    findings += answer(installation.STORES, lambda: installation.check_stores(settings.placement()))
    findings += answer(installation.REPLICAS, lambda: installation.check_replicas(settings.placement()))
    findings += answer(installation.UNFINISHED, lambda: installation.check_unfinished(settings))
    now = dt.datetime.now(dt.UTC)
    findings += answer(lag_checks.SOURCES, lambda: lag_checks.check_sources(settings, now))
    findings += answer(lag_checks.DELIVERIES, lambda: lag_checks.check_deliveries(settings, now))
    findings += answer(log_checks.SLOTS, lambda: log_checks.check_slots(settings))
    findings += answer(log_checks.CAPTURES, lambda: log_checks.check_captures(settings))
    findings += answer(
        connection_slot_checks.SLOTS, lambda: connection_slot_checks.check_connection_slots(settings)
    )
    findings += answer(control_checks.CONTROL, lambda: control_checks.check_control(settings))
    findings += answer(installation.ENGINE, lambda: installation.check_engine(settings.home))
    return findings + answer(installation.INSTANCE, lambda: installation.check_instance(settings))
