"""Figures of chaos, told at the end of the test run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_TOLD = pytest.StashKey[list[str]]()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Says something at the end of the test run."""
    return request.config.stash.setdefault(_TOLD, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_TOLD, []):
        terminalreporter.write_line(line)
