"""Findings of checks, as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl_assets.observability.findings import Finding

_COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


def show_findings(findings: Sequence[Finding]) -> None:
    """Print findings, each with its fix, and how many need attention."""
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
