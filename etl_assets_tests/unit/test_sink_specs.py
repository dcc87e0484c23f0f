"""What a declaration of a sink can check by itself."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from etl_assets.pipelines.sink_specs.postgres import POSITIONS, PostgresSinkSpec


def test_a_target_is_not_the_table_of_positions():
    with pytest.raises(ValidationError, match="keeps positions"):
        PostgresSinkSpec(type="postgres", connection="warehouse", table=f"analytics.{POSITIONS}")


@pytest.mark.parametrize("table", ["suppliers", "a.b.c", 'a."b"', "a.b; DROP TABLE c", "a. b"])
def test_a_target_is_a_schema_and_a_table(table):
    with pytest.raises(ValidationError, match="table"):
        PostgresSinkSpec(type="postgres", connection="warehouse", table=table)
