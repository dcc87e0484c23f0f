"""Files of captures: `<home>/captures/*.yaml`, one capture each.

Belongs here: reading them. Does not belong here: their fields (`capture_spec.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from etl_assets.errors import NotFound, PipelinesBroken
from etl_assets.pipelines.capture_spec import CaptureSpec
from etl_assets.pipelines.yaml_tree import MAX_BYTES, read_tree

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFile:
    """A file and the capture in it.

    Attributes:
        path: The file.
        spec: The capture; None if it cannot be used.
        problem: What is wrong; empty if nothing is.
    """

    path: Path
    spec: CaptureSpec | None
    problem: str = ""

    @property
    def name(self) -> str:
        """The capture's name; of a file that cannot be used, the file's without its suffix."""
        return self.path.stem if self.spec is None else self.spec.name


def captures_folder(home: Path) -> Path:
    """Return the folder of an installation's captures, which may not exist."""
    return home / "captures"


def read_captures(home: Path) -> tuple[CaptureFile, ...]:
    """Read the captures of an installation, by the names of their files."""
    folder = captures_folder(home)
    if not folder.is_dir():
        return ()
    names = sorted(each for each in folder.iterdir() if each.suffix in SUFFIXES and each.name[0] != ".")
    return tuple(map(_read, names))


def usable_captures(home: Path) -> Mapping[str, CaptureSpec]:
    """Return the captures that can be used, by name."""
    return {each.spec.name: each.spec for each in read_captures(home) if each.spec is not None}


def find_capture(home: Path, name: str) -> CaptureSpec:
    """Return a capture.

    Raises:
        NotFound: there is none of that name.
        PipelinesBroken: its file cannot be used.
    """
    for each in read_captures(home):
        if each.spec is not None and each.spec.name == name:
            return each.spec
        if each.spec is None and each.path.stem == name:
            raise PipelinesBroken(f"{each.path} cannot be used: {each.problem}", fix="correct the file")
    known = ", ".join(usable_captures(home))
    raise NotFound(
        f"there is no capture {name!r}",
        fix=f"declare it in {captures_folder(home) / f'{name}.yaml'}; captures: {known or 'none'}",
    )


def _read(path: Path) -> CaptureFile:
    try:
        with path.open("rb") as file:
            return _parsed(path, file.read(MAX_BYTES + 1))
    except OSError as error:
        return CaptureFile(path=path, spec=None, problem=error.strerror or type(error).__name__)


@lru_cache(maxsize=64)  # each table of a capture asks for it at every look
def _parsed(path: Path, text: bytes) -> CaptureFile:
    tree = read_tree(text)
    if tree.problems:
        first = tree.problems[0]
        return CaptureFile(path=path, spec=None, problem=f"line {first.line}: {first.message}")
    content = tree.value
    if not isinstance(content, dict):
        return CaptureFile(path=path, spec=None, problem="the file holds no mapping of fields")
    try:
        return CaptureFile(path=path, spec=CaptureSpec.model_validate({"name": path.stem, **content}))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(each) for each in first["loc"])
        return CaptureFile(path=path, spec=None, problem=f"{place}: {first['msg']}")
