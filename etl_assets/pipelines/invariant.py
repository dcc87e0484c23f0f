"""Invariants of pipelines: conditions that hold after every run.

They are evaluated from file statistics, cost milliseconds, and may block. Belongs here: the declaration. Does
not belong here: how one is evaluated (`steps/invariants.py`, and the pipelines' own modules), and its asset
check (`checks/invariants.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantResult:
    """Whether an invariant holds, and the figures that show it."""

    passed: bool
    metadata: Mapping[str, int | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """A condition on a stage's table that must hold after every run.

    Attributes:
        table: Name of the table.
        name: Name of the check.
        evaluate: Checks the tables of a domain, by file statistics. Its docstring is the check's description.
    """

    table: str
    name: str
    evaluate: Callable[[FailureDomain], InvariantResult]

    @property
    def description(self) -> str:
        """The condition in words: the docstring of `evaluate`."""
        function = getattr(self.evaluate, "func", self.evaluate)
        return inspect.getdoc(function) or ""
