"""`etl-assets`: the group of all commands, and the handling of errors.

Exit codes: 0 done; 1 an error, with a message and its fix; 2 a wrong call.
"""

from __future__ import annotations

import importlib
import sys

import click

from etl_assets import __version__, built_in
from etl_assets.errors import EtlAssetsError

COMMANDS = {
    "setup": "etl_assets.cli.setup:setup",
    **built_in.COMMANDS,
    "dev": "etl_assets.cli.dev:dev",
    "run": "etl_assets.cli.run:run",
    "worker": "etl_assets.cli.worker:worker",
    "serve": "etl_assets.cli.serve:serve",
    "tokens": "etl_assets.cli.tokens:tokens",
    "produce": "etl_assets.cli.produce:produce",
    "engine": "etl_assets.cli.engine:engine",
    "pipelines": "etl_assets.cli.pipelines:pipelines",
    "tables": "etl_assets.cli.tables:tables",
    "sql": "etl_assets.cli.sql:sql",
    "reprocess": "etl_assets.cli.reprocess:reprocess",
    "domains": "etl_assets.cli.domains:domains",
    "dead-letters": "etl_assets.cli.dead_letters:dead_letters",
    "effects": "etl_assets.cli.effects:effects",
    "trace": "etl_assets.cli.trace:trace",
    "cdc": "etl_assets.cli.cdc:cdc",
    "doctor": "etl_assets.cli.doctor:doctor",
}
"""Import path of each command. Imported on use, so that a quick command does not pay for Dagster or Spark."""
RENAMED = {"follow": "worker"}
"""Former names of commands, which work for one release."""


class LazyGroup(click.Group):
    """A group whose commands are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all commands, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; None if there is none of that name."""
        if cmd_name in RENAMED:
            click.echo(f"`etl-assets {cmd_name}` is now `etl-assets {RENAMED[cmd_name]}`", err=True)
            cmd_name = RENAMED[cmd_name]
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        return getattr(importlib.import_module(module), name)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="etl-assets")
def cli() -> None:
    """The asset platform: records in, each counted exactly once, seen and steered in Dagster."""


def main() -> None:
    """Run the command line."""
    try:
        cli()
    except EtlAssetsError as error:
        click.echo(f"error: {type(error).__name__}: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
