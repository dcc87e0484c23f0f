"""`etl-assets setup`: install the parts of the machine that Spark needs and pip does not install."""

from __future__ import annotations

import click


@click.command()
@click.option("--check", is_flag=True, help="Only look whether Java and the jars are there; change nothing.")
def setup(check: bool) -> None:
    """Bring Java, Delta's two jars and the archive of classes where they are missing, once for each machine.

    Java is installed by apt-get, as root or with a sudo that asks nothing; elsewhere the command to run is
    named.
    """
    from etl_assets.runtime import machine

    click.echo(machine.look() if check else machine.set_up(_say))


def _say(line: str) -> None:
    click.echo(line, err=True)
