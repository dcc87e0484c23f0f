"""`etl-assets tokens`: who may do what over HTTP."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from etl_assets.cli.dead_letter_options import JSON


def _name(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return a name: the keys of a client begin with its tenant and name, each before a `/`."""
    if not value.strip() or "/" in value:
        raise click.BadParameter(f"{value!r} is no name: it is to have a character, and no `/`")
    return value


@click.group()
def tokens() -> None:
    """Tokens of the HTTP server: who may do what with which pipelines."""


@tokens.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets tokens add shop --pipeline film_ratings --days 90\n"
        "  etl-assets tokens add oncall --scope operate\n"
        "  etl-assets tokens add robot --scope admin --scope ingest --tenant acme\n"
    )
)
@click.argument("client", metavar="CLIENT", callback=_name)
@click.option("--pipeline", "pipelines", multiple=True, metavar="NAME", help="Only this one; repeatable.")
@click.option(
    "--domain",
    "domains",
    multiple=True,
    metavar="DOMAIN",
    help="It sends from this failure domain, or one in it, and only while that may ingest; repeatable.",
)
@click.option(
    "--tenant", default="default", show_default=True, callback=_name, help="The tenant that it belongs to."
)
@click.option("--days", type=click.IntRange(1, 36_500), help="How long it is valid; by default for ever.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["ingest", "read", "operate", "admin"]),
    help="What it allows; repeatable. `ingest` (the default) sends events, `read` sees, `operate` also runs"
    " and pauses, `admin` also defines pipelines.",
)
@click.option("--read", is_flag=True, help="The same as --scope read.")
@JSON
def add(
    client: str,
    pipelines: tuple[str, ...],
    domains: tuple[str, ...],
    tenant: str,
    days: int | None,
    scopes: tuple[str, ...],
    read: bool,
    as_json: bool,
) -> None:
    """Add a token for CLIENT, and show it: this once, as only its hash is stored.

    A client may have several at a time, and its Idempotency-Keys hold for all of them.
    """
    from etl_assets.serve.tokens import EVERY, Scope, Tokens
    from etl_assets.settings import load_settings

    settings, now = load_settings(), dt.datetime.now(dt.UTC)
    _expect_domains(domains, [each.name for each in settings.domains])
    wanted = (*scopes, Scope.READ.value) if read else scopes
    token, secret = Tokens(settings.home).add(
        client,
        now=now,
        tenant=tenant,
        pipelines=pipelines or (EVERY,),
        domains=domains or (EVERY,),
        scopes=[*map(Scope, dict.fromkeys(wanted))] or [Scope.INGEST],
        expires_at=None if days is None else now + dt.timedelta(days=days),
    )
    if as_json:
        click.echo(json.dumps({**_shown(asdict(token)), "token": secret}))
        return
    click.echo(secret)
    click.echo(f"the token {token.id} of {client}: it is not shown again", err=True)


@tokens.command(name="list")
@JSON
def list_command(as_json: bool) -> None:
    """List the tokens, without their secrets."""
    from etl_assets.serve.tokens import Tokens
    from etl_assets.settings import load_settings

    found = Tokens(load_settings().home).all()
    if as_json:
        click.echo(json.dumps([_shown(asdict(each)) for each in found]))
        return
    if not found:
        click.echo("there are no tokens; `etl-assets tokens add CLIENT` adds one")
    now = dt.datetime.now(dt.UTC)
    for each in found:
        until = "no end" if each.expires_at is None else f"until {each.expires_at}"
        state = " (expired)" if each.has_expired(now) else ""
        may = f"{', '.join(each.scopes)} {', '.join(each.pipelines)}"
        where = f", from {', '.join(each.domains)}" if each.is_bound else ""
        click.echo(f"{each.id} {each.client}: {may}{where}, {each.tenant}, {until}{state}")


@tokens.command(epilog="\b\nExample:\n  etl-assets tokens revoke 1f2e3d4c\n")
@click.argument("token_id", metavar="ID")
def revoke(token_id: str) -> None:
    """Revoke a token. It is refused from the next request on."""
    from etl_assets.serve.tokens import Tokens
    from etl_assets.settings import load_settings

    token = Tokens(load_settings().home).revoke(token_id)
    click.echo(f"revoked the token {token.id} of {token.client}")


def _expect_domains(names: Sequence[str], known: Sequence[str]) -> None:
    from etl_assets.placement.policy import covers

    for name in names:
        if not any(covers(name, each) for each in known):
            raise click.BadParameter(
                f"{name!r} is no failure domain; there are {', '.join(known)}", param_hint="--domain"
            )


def _shown(token: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in token.items() if name != "hash"}
