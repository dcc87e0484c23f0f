"""Figures of chaos, told at the end of the test run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

TOLD = "told"


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Says something at the end of the test run."""

    def kept(line: str) -> None:
        # A property of the test travels with its report, whichever process ran it.
        request.node.user_properties.append((TOLD, line))

    return kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, line in report.user_properties:
            if name == TOLD and report.when == "call":
                terminalreporter.write_line(line)
