"""The fencing token of a run, as steps, tables and sinks carry it.

Belongs here: the value. Does not belong here: what a table does with it (`write/run_fence.py`), and where
tokens come from (`control/run_controls.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunToken:
    """The right of a runner to commit for a pipeline, until a runner with a higher token begins.

    Attributes:
        pipeline: The pipeline.
        token: The fencing token. Each claim of the pipeline has a higher one.
        lost: The highest token of a runner that was lost, and may wake up; 0 if none was.
    """

    pipeline: str
    token: int
    lost: int = 0

    @property
    def takes_over(self) -> bool:
        """Whether runners that may wake up have to be rejected before this one begins."""
        return self.lost > 0
