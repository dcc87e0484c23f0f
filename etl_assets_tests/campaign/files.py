"""Landing files as producers leave them: odd names, every ending, compression, line ends; and what is not to
be read.

Belongs here: bytes and names. Does not belong here: what their lines say (`lines.py`), and which of them were
read when (`reference.py`).
"""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BOM = b"\xef\xbb\xbf"
_ENDINGS = (".jsonl", ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
_NAMES = (
    "{}", "{} with spaces", "{}%20%41", "{}:1", "{}*[a]?", "{}{{x}}", "{}#&=+;,", "{}'\"`$(x)",
    "{}-ä-\u0308a",
    "{}\u202e", "{}\U0001f600", "-{}", "={}", "{}\\n", "{}\tx", "{}\nx", "{}" + "n" * 180, "{}.jsonl",
    "{}.tmp.x", "~{}",
    "{}.part.x", "{}|<>", "{}!^", "{}%", "{}%zz", "@{}",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingFile:
    """A file that is to be read, and its lines as they count."""

    day: str
    name: str
    content: bytes

    @property
    def lines(self) -> list[bytes]:
        """Its lines without line ends and byte order mark, by the rules of docs/events.md."""
        content = unpacked(self.content) if self.name.endswith(".gz") else self.content
        found = content.removeprefix(BOM).split(b"\n")
        if not found[-1]:
            found.pop()
        return [line.removesuffix(b"\r") for line in found]


def landing_file(dice: random.Random, day: str, number: int, lines: Sequence[bytes]) -> LandingFile:
    """The lines in a file with a name and bytes as dice have it."""
    # By number first in most of them; in the others the order of names is another one than that of writing.
    stem = dice.choice(["f{:04d}", "f{:04d}", "e{:04d}", "g{:04d}"]).format(number)
    name = dice.choice(_NAMES).format(stem) + dice.choice(_ENDINGS)
    content = _joined(dice, list(lines))
    return LandingFile(day=day, name=name, content=packed(dice, content) if name.endswith(".gz") else content)


def changed(dice: random.Random, file: LandingFile, new: Sequence[bytes]) -> LandingFile:
    """The same file grown, shrunk, or with lines that are others, after it was read."""
    lines, how = list(file.lines), dice.choice(["grown", "shrunk", "replaced", "moved"])
    if how == "grown" or len(lines) < 2:
        lines += new
    elif how == "shrunk":
        lines = lines[: dice.randrange(1, len(lines))]
    elif how == "replaced":
        for line in new[:2]:
            lines[dice.randrange(len(lines))] = line
    else:
        lines.insert(dice.randrange(len(lines)), new[0])
    content = b"".join(line + b"\n" for line in lines)
    return LandingFile(
        day=file.day, name=file.name, content=packed(dice, content) if file.name.endswith(".gz") else content
    )


def _joined(dice: random.Random, lines: list[bytes]) -> bytes:
    end = dice.choice([b"\n", b"\n", b"\r\n"])
    if dice.random() < 0.3:
        lines.insert(dice.randrange(len(lines) + 1), dice.choice([b"", b"  ", b"\t", b" " * 70_000]))
    content = end.join(lines) + (end if dice.random() < 0.8 else b"")
    return (BOM if dice.random() < 0.15 else b"") + content


def packed(dice: random.Random, content: bytes) -> bytes:
    """Gzip as programs write it: one member or several, padded with zeros, nothing at all."""
    if not content:
        return b""
    middle = dice.randrange(len(content) + 1)
    return dice.choice(
        [
            gzip.compress(content),
            gzip.compress(content[:middle]) + gzip.compress(content[middle:]),
            gzip.compress(content) + b"\0" * 512,
            gzip.compress(content, 0),
        ]
    )


def unpacked(content: bytes) -> bytes:
    """What was packed."""
    return gzip.decompress(content) if content else b""


def broken(dice: random.Random, lines: Sequence[bytes]) -> bytes:
    """Bytes that are not what `.gz` says."""
    content = b"".join(line + b"\n" for line in lines)
    whole = gzip.compress(content)
    return dice.choice([whole[: len(whole) // 2], whole + b"rubbish", content, whole[:5], whole[:-4]])


def leave_what_is_not_read(dice: random.Random, landing: Path, day: str, number: int, line: bytes) -> str:
    """Something with an event in it that is not to be read; what it is."""
    folder = landing / day
    folder.mkdir(parents=True, exist_ok=True)
    kind = dice.choice(
        [
            "hidden",
            "open",
            "other ending",
            "nested",
            "link",
            "fifo",
            "folder",
            "odd day",
            "before the first day",
        ]
    )
    content = line + b"\n"
    match kind:
        case "hidden":
            (folder / dice.choice([f".h{number}.jsonl", f"_h{number}.jsonl"])).write_bytes(content)
        case "open":
            ending = dice.choice([".tmp", ".part", ".inprogress"])
            (folder / f"o{number}.jsonl{ending}").write_bytes(content)
        case "other ending":
            ending = dice.choice([".json", ".JSONL", ".jsonl.bz2", ".txt", ".csv", ""])
            (folder / f"t{number}{ending}").write_bytes(content)
        case "nested" | "folder":
            inner = folder / (f"sub{number}" if kind == "nested" else f"d{number}.jsonl")
            inner.mkdir()
            (inner / "a.jsonl").write_bytes(content)
        case "link":
            aim = landing.parent / f"aim{number}"
            aim.write_bytes(content)
            (folder / f"l{number}.jsonl").symlink_to(dice.choice([aim, landing.parent / "nowhere"]))
        case "fifo":
            os.mkfifo(folder / f"p{number}.jsonl")
        case _:
            odd = [
                "2026-2-3",
                "20260203",
                "2026-W06-2",
                "2026-02-30",
                "today",
                "2026-02-03 ",
                "2026-02-03.bak",
            ]
            name = dice.choice(odd) if kind == "odd day" else "2026-01-15"
            (landing / name).mkdir(exist_ok=True)
            (landing / name / f"a{number}.jsonl").write_bytes(content)
    return kind
