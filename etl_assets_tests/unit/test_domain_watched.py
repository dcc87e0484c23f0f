"""What a step says when its failure domain is lost while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from etl_assets.error_policy import Decision, decide
from etl_assets.errors import DomainUnavailable
from etl_assets.placement.domains import FailureDomain
from etl_assets.steps.step import StepContext, domain_watched


def context(problem: str | None) -> StepContext:
    domain = FailureDomain(name="rack/a", root=Path("/nowhere"))

    def session() -> NoReturn:
        raise AssertionError("no session is needed")

    return StepContext(session=session, domain=domain, domain_problem=lambda: problem)


def test_the_loss_is_named_and_the_step_is_repeated_elsewhere():
    with (
        pytest.raises(DomainUnavailable, match="rack/a was lost on the way: emptied") as lost,
        domain_watched(context("emptied")),
    ):
        raise FileNotFoundError("part-0.parquet")
    assert decide(lost.value) is Decision.RETRY
    assert isinstance(lost.value.__cause__, FileNotFoundError)


def test_an_error_in_a_domain_that_is_there_stays_what_it_is():
    with pytest.raises(FileNotFoundError), domain_watched(context(None)):
        raise FileNotFoundError("part-0.parquet")
