"""`etl-assets doctor`: problems of this machine and installation, each with its fix."""

from __future__ import annotations

import json
import sys

import click

from etl_assets.cli.shown_findings import show_findings


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
        show_findings(findings)
    if any(finding.status == "fail" for finding in findings):
        sys.exit(1)
