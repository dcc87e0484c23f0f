"""`etl-assets domains`: the state of the failure domains, and the operator's changes to it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from etl_assets.observability.domain_states import DomainState
    from etl_assets.placement.domain_registry import AdminState
    from etl_assets.placement.domains import Placement


@click.group()
def domains() -> None:
    """Failure domains: see them, and take them out of use and back."""


@domains.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, for machines.")
def list_(as_json: bool) -> None:
    """Show every domain: its health, what it leads, and how far each of its replicas is behind.

    The last line says whether losing any one domain now would lose anything. Exit code 1 if it would, or if a
    domain cannot be used.
    """
    from etl_assets.observability.domain_states import domain_states, one_loss
    from etl_assets.settings import load_installation

    settings = load_installation()
    states = domain_states(settings.placement())
    danger = one_loss(states)
    if as_json:
        click.echo(json.dumps([state.as_json() for state in states]))
    else:
        _show(states)
        click.echo(danger or "Losing any one domain now would lose nothing.")
    for doubt in settings.doubts:
        click.echo(f"warning: {doubt}", err=True)
    if danger or any(state.problem for state in states):
        sys.exit(1)


@domains.command()
@click.argument("name")
def probe(name: str) -> None:
    """Write and read under a domain's root now, and say what is wrong. Exit code 1 if the root cannot be
    used.

    Counts like a probe of the sensor: a domain that was given up is back after several in a row that went
    well.
    """
    from etl_assets.placement.domain_registry import AdminState

    placement = _placement(name)
    health = placement.watch.probe(placement.site(name))
    standing = placement.memory.of(name).standing
    if why := health.problem or health.why:
        click.echo(f"{name}: {health.state}, {why}")
    elif standing is not AdminState.IN_USE:
        click.echo(
            f"{name}: healthy; {standing.value} by an operator, `etl-assets domains heal {name}` puts it"
            " back to use"
        )
    else:
        click.echo(f"{name}: healthy, can be used")
    if health.problem:
        sys.exit(1)


@domains.command()
@click.argument("name")
def fail(name: str) -> None:
    """Place nothing in a domain, as if its probe failed: its stages move to other allowed domains."""
    from etl_assets.placement.domain_registry import AdminState

    _set(name, AdminState.FAILED)


@domains.command()
@click.argument("name")
def drain(name: str) -> None:
    """Place no further stage in a domain, before maintenance; its replicas are kept up as long as it
    answers.
    """
    from etl_assets.placement.domain_registry import AdminState

    _set(name, AdminState.DRAINED)


@domains.command()
@click.argument("name")
@click.option(
    "--new-root", is_flag=True, help="Its root was replaced on purpose: what was on the old one is given up."
)
def heal(name: str, new_root: bool) -> None:
    """Put a domain back to use after `fail` or `drain`."""
    placement = _placement(name)
    problem = placement.heal(name, new_root=new_root)
    if problem is None:
        _tell(placement, name)
    else:
        click.echo(f"{name}: {problem}")


@domains.command()
@click.argument("name")
def remove(name: str) -> None:
    """Take the replicas of a domain out of every table, after it was taken out of the platform file.

    What lies under its root stays. May be repeated; exit code 1 if a table still has a replica there.
    """
    from etl_assets.errors import InputError
    from etl_assets.replicas.members import take_out
    from etl_assets.settings import load_installation

    placement = load_installation().placement()
    if name in [site.name for site in placement.sites]:
        raise InputError(
            f"{name} is in the platform file: it would join again",
            fix=f"take it out of `domains` there, reload the code location or restart `etl-assets dev`, then "
            f"`etl-assets domains remove {name}`",
            domain=name,
        )
    told = list(take_out(placement, name))
    if not told:
        click.echo(f"no table has a replica in {name}")
    for table, problem in told:
        click.echo(f"{table}: {f'not taken out: {problem}' if problem else f'has no replica in {name} now'}")
    if any(problem for _, problem in told):
        sys.exit(1)
    placement.memory.forget(name)


def _set(name: str, standing: AdminState) -> None:
    placement = _placement(name)
    placement.memory.set_standing(name, standing)
    _tell(placement, name)


def _tell(placement: Placement, name: str) -> None:
    click.echo(f"{name}: {placement.problem(placement.site(name)) or 'in use'}")


def _placement(name: str) -> Placement:
    """Return the placement of this installation, if it has a domain of that name."""
    from etl_assets.errors import NotFound
    from etl_assets.settings import load_installation

    placement = load_installation().placement()
    names = [site.name for site in placement.sites]
    if name not in names:
        raise NotFound(
            f"there is no failure domain {name}", fix=f"name one of {', '.join(names)}", domain=name
        )
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
            state.told,
            ", ".join(state.leads),
            ", ".join(f"{name} {lag:,}" for name, lag in behind.items() if lag is not None)
            or ("does not answer" if behind else "0"),
        )
    Console().print(table)
