"""`python -m etl_assets.runtime`: the parts of `make setup` that are not pip.

Belongs here: the commands and their lines on the terminal. Does not belong here: what they do, which is in the modules
beside this one. It runs before anything is installed, so it imports the standard library only.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from etl_assets.errors import EtlAssetsError
from etl_assets.runtime import virtual_environment
from etl_assets.runtime.classes import ensure_archive
from etl_assets.runtime.jars import delta_jars, ensure_jars
from etl_assets.runtime.java import ensure_java, find_java


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
    installs = options.command == "setup"
    java = ensure_java(_say) if installs else find_java()
    jars = ensure_jars(java, _say) if installs else delta_jars(thorough=True)
    if installs:
        ensure_archive(java, jars, _say)
    _say(f"ready: Java {java.release} in {java.home}, Delta's {len(jars)} jars in {jars[0].parent}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m etl_assets.runtime", description="Set up this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "setup", help="bring Java, Delta's jars and the archive of classes where they are missing"
    )
    commands.add_parser("check", help="only look whether they are there")
    venv = commands.add_parser("venv", help="create a virtual environment of this Python, anew")
    venv.add_argument("folder", type=Path)
    return parser


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
