"""What a Python function returned, as the declared columns."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from etl_assets.transforms.python_functions import as_declared


def test_a_text_becomes_the_decimal_that_it_says():
    texts = pa.array(["1.5", None, "99999999999999999999.5"])
    found = as_declared(texts, pa.decimal128(38, 18))
    assert found.to_pylist() == [Decimal("1.5"), None, Decimal("99999999999999999999.5")]


@pytest.mark.parametrize("text", ["1111111111111111111111111.5", "123456789012345678901234567890.12"])
def test_a_text_that_does_not_fit_a_decimal_is_an_error_and_not_another_number(text):
    with pytest.raises(pa.ArrowInvalid):
        as_declared(pa.array([text]), pa.decimal128(38, 18))
