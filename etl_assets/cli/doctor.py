"""`etl-assets doctor`: problems of this machine and installation, each with its fix."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from etl_assets.observability.findings import Finding

_COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets doctor\n"
        "  etl-assets doctor --json | jq '.[] | select(.status != \"ok\")'\n"
    )
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, for machines.")
def doctor(as_json: bool) -> None:
    """Check Java, Delta's jars, packages, disk, settings, write access, clock, locks and the Dagster
    instance.

    Changes nothing. Exit code 1 if a check fails; warnings do not count.
    """
    from etl_assets.observability.diagnosis import diagnose

    findings = diagnose()
    if as_json:
        click.echo(json.dumps([finding.as_json() for finding in findings]))
    else:
        _show(findings)
    if any(finding.status == "fail" for finding in findings):
        sys.exit(1)


def _show(findings: list[Finding]) -> None:
    for finding in findings:
        mark = click.style(f"{finding.status.value:5}", fg=_COLORS[finding.status.value])
        click.echo(f"{mark}{finding.check:18}{finding.detail}")
        if finding.fix is not None:
            click.echo(f"{'':5}{'':18}fix: {finding.fix}")
    failed = sum(finding.status == "fail" for finding in findings)
    warned = sum(finding.status == "warn" for finding in findings)
    if failed or warned:
        click.echo(f"{failed} failed, {warned} to look at", err=True)
    else:
        click.echo("all is well", err=True)
