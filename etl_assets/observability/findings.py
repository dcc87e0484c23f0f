"""Finding of an installation check:

a status, what was seen, and the fix. The terms of `etl-assets doctor`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from etl_assets.errors import EtlAssetsError


class Status(StrEnum):
    """Status of a check.

    OK: fine.
    WARN: works, but needs attention.
    FAIL: some function of the platform will not work.
    """

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one check; `fix` is None where nothing is wrong."""

    check: str
    status: Status
    detail: str
    fix: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return {**dataclasses.asdict(self), "status": self.status.value}


def ok(check: str, detail: str) -> Finding:
    return Finding(check=check, status=Status.OK, detail=detail)


def warn(check: str, detail: str, fix: str) -> Finding:
    return Finding(check=check, status=Status.WARN, detail=detail, fix=fix)


def fail(check: str, detail: str, fix: str) -> Finding:
    return Finding(check=check, status=Status.FAIL, detail=detail, fix=fix)


def answer(check: str, ask: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Run one check. An error inside it becomes a finding, so that later checks still run."""
    try:
        return list(ask())
    except EtlAssetsError as error:
        return [fail(check, error.message, error.fix)]
    except Exception as error:  # noqa: BLE001 - any error is the finding
        text = str(error).strip().splitlines()
        first = f"{type(error).__name__}: {text[0] if text else 'no more is known'}"
        return [fail(check, first, "fix what the message names, then run `etl-assets doctor` again")]
