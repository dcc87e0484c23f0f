"""`python -m etl_assets.runtime`: the parts of `make setup` that are not pip.

Belongs here: the commands and their lines on the terminal. Does not belong here: their work, which the
neighbouring modules do. It runs before anything is installed, so it imports the standard library only.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from etl_assets.errors import EtlAssetsError
from etl_assets.runtime import machine, virtual_environment


def main(arguments: list[str] | None = None) -> int:
    try:
        _run(_parser().parse_args(arguments))
    except EtlAssetsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _run(options: argparse.Namespace) -> None:
    if options.command == "venv":
        virtual_environment.create(options.folder, _say)
        return
    _say(machine.set_up(_say) if options.command == "setup" else machine.look())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m etl_assets.runtime", description="Set up this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "setup", help="bring Java, Delta's jars and the archive of classes where they are missing"
    )
    commands.add_parser("check", help="only look whether they are there")
    venv = commands.add_parser("venv", help="recreate the virtual environment of this Python")
    venv.add_argument("folder", type=Path)
    return parser


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
