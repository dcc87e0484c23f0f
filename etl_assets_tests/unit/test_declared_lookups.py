"""A lookup of a declared pipeline matches at most one row."""

from __future__ import annotations

import pytest

from etl_assets.errors import ContractError
from etl_assets_tests.reference.declared_pipeline import declared, tables_of


def test_a_lookup_compares_the_whole_key_of_the_other_table():
    lookup = {
        "type": "lookup",
        "table": "countries",
        "on": {"country": "region"},
        "columns": {"code": "code"},
    }
    tables = tables_of(declared(transforms=[lookup]))
    with pytest.raises(ContractError, match="may match several rows of countries") as refused:
        tables.columns_after(0)
    assert (refused.value.fix, refused.value.field) == ("compare its whole key: code", "transforms.0.on")
