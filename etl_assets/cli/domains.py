"""`etl-assets domains`: where the failure domains stand, and what the operator says of them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from etl_assets.observability.domain_states import DomainState
    from etl_assets.placement.domains import Placement
    from etl_assets.placement.memory import Standing


@click.group()
def domains() -> None:
    """Failure domains: see them, and take them out of use and back."""


@domains.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, for machines.")
def list_(as_json: bool) -> None:
    """Show every domain: its health, what it leads, and how far each of its replicas is behind.

    The last line says whether losing any one domain now would lose anything. Exit code 1 if it would, or if a domain
    cannot be used.
    """
    from etl_assets.observability.domain_states import domain_states, one_loss
    from etl_assets.settings import load_settings

    placement = load_settings().placement()
    states = domain_states(placement)
    danger = one_loss(states)
    if as_json:
        click.echo(json.dumps([state.as_json() for state in states]))
    else:
        _show(states)
        click.echo(danger or "Losing any one domain now would lose nothing.")
    if danger or any(state.problem for state in states):
        sys.exit(1)


@domains.command()
@click.argument("name")
def probe(name: str) -> None:
    """Read and write under a domain's root, and say what is wrong. Exit code 1 if something is."""
    placement = _placement(name)
    domain = placement.named(name)
    problem = None if domain is None else placement.unusable(domain)
    click.echo(f"{name}: {problem or 'can be used'}")
    if problem:
        sys.exit(1)


@domains.command()
@click.argument("name")
def fail(name: str) -> None:
    """Place nothing in a domain, as if its probe failed: its stages move to other allowed domains."""
    from etl_assets.placement.memory import Standing

    _set(name, Standing.FAILED)


@domains.command()
@click.argument("name")
def drain(name: str) -> None:
    """Place no further stage in a domain, before maintenance; its replicas are kept up as long as it answers."""
    from etl_assets.placement.memory import Standing

    _set(name, Standing.DRAINED)


@domains.command()
@click.argument("name")
@click.option(
    "--new-root", is_flag=True, help="Its root was replaced on purpose: what was on the old one is given up."
)
def heal(name: str, new_root: bool) -> None:
    """Put a domain back to use after `fail` or `drain`."""
    from etl_assets.placement.memory import Standing

    placement = _placement(name)
    if new_root:
        placement.memory.forget(name)
    _set(name, Standing.IN_USE)


def _set(name: str, standing: Standing) -> None:
    placement = _placement(name)
    placement.memory.set_standing(name, standing)
    domain = placement.named(name)
    problem = None if domain is None else placement.problem(domain)
    click.echo(f"{name}: {problem or 'in use'}")


def _placement(name: str) -> Placement:
    """The placement of this installation, if it has a domain of that name."""
    from etl_assets.errors import NotFound
    from etl_assets.settings import load_settings

    placement = load_settings().placement()
    if placement.named(name) is None:
        names = ", ".join(domain.name for domain in placement.domains)
        raise NotFound(f"there is no failure domain {name}", fix=f"name one of {names}", domain=name)
    return placement


def _show(states: list[DomainState]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("domain", no_wrap=True)
    table.add_column("role")
    table.add_column("state")
    table.add_column("leads")
    table.add_column("behind", justify="right")
    for state in states:
        behind = {name: lag for name, lag in state.behind.items() if lag != 0}
        table.add_row(
            state.name,
            state.role,
            state.problem or "healthy",
            ", ".join(state.leads),
            ", ".join(f"{name} {lag:,}" for name, lag in behind.items() if lag is not None)
            or ("does not answer" if behind else "0"),
        )
    Console().print(table)
