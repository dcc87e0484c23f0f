"""The runbook has a paragraph for whatever an alert may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl_assets import errors
from etl_assets.sensors.alerts import AlertKind

RUNBOOK = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
NOT_OF_RUNS = {
    # Groups of errors, not situations.
    "EtlAssetsError",
    "InputError",
    "MirrorError",
    # Told to whoever called a command.
    "AddressUnusable",
    "DeclarationConflict",
    "DeclarationRefused",
    "DevRunning",
    "LandingFileDiffers",
    "LandingNotWritten",
    "NotFound",
    "PipelinesBroken",
    "QueryRefused",
    "RequestRefused",
    "RunFailed",
    "ServerNotStarted",
}


@pytest.mark.parametrize("kind", AlertKind)
def test_every_kind_of_alert_has_a_heading_and_something_under_it(kind):
    _, heading, after = RUNBOOK.partition(f"\n### {kind}\n")
    assert heading
    assert len(after.partition("\n#")[0].split()) > 3


def test_the_fix_of_an_alert_names_a_heading():
    for kind in AlertKind:
        assert f"(#{kind.lower()})" in RUNBOOK, "the table of kinds leads to it"


def test_every_error_that_may_end_a_run_is_in_the_runbook():
    named = {
        name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)
    }
    missing = {name for name in named - NOT_OF_RUNS if f"`{name}`" not in RUNBOOK}
    assert missing == set()
