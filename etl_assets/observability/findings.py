"""What a check of the installation found: a status, what was seen, and the fix. The words of `etl-assets doctor`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from etl_assets.errors import EtlAssetsError


class Status(StrEnum):
    """OK: fine. WARN: works, but look at it. FAIL: something the platform does will not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer of one check; `fix` is None where nothing is wrong."""

    check: str
    status: Status
    detail: str
    fix: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON has it."""
        return {**dataclasses.asdict(self), "status": self.status.value}


def ok(check: str, detail: str) -> Finding:
    return Finding(check=check, status=Status.OK, detail=detail)


def warn(check: str, detail: str, fix: str) -> Finding:
    return Finding(check=check, status=Status.WARN, detail=detail, fix=fix)


def fail(check: str, detail: str, fix: str) -> Finding:
    return Finding(check=check, status=Status.FAIL, detail=detail, fix=fix)


def answer(check: str, ask: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Run one check; one that breaks is a finding like any other, so that the checks after it still run."""
    try:
        return list(ask())
    except EtlAssetsError as error:
        return [fail(check, error.message, error.fix)]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was found
        text = str(error).strip().splitlines()
        first = f"{type(error).__name__}: {text[0] if text else 'no more is known'}"
        return [fail(check, first, "mend what the message names, then run `etl-assets doctor` again")]
