"""The form of a W3C trace context, and the column that a pipeline declares for it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from etl_assets.contracts.trace_context import trace_id_of
from etl_assets.errors import ContractError
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.sinks.kafka.records import traceparents

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
VALID = f"00-{TRACE}-00f067aa0ba902b7-01"


def declared(**table: object) -> DeclaredTables:
    spec = {
        "name": "ratings",
        "source": {"type": "http", "id": ["id"], "include": ["headers.traceparent"]},
        "columns": {"id": "bigint", "trace": {"type": "string", "from": "http.headers.traceparent"}},
        "table": {"keys": ["id"], **table},
    }
    return DeclaredTables(spec=PipelineSpec.model_validate(spec), contract_of=lambda name: pytest.fail(name))


@pytest.mark.parametrize("value", [VALID, f"cc-{TRACE}-00f067aa0ba902b7-01-what-comes-later"])
def test_a_trace_context_has_a_trace_id(value):
    assert trace_id_of(value) == TRACE


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "",
        VALID.upper(),
        f"{VALID}-more",
        f"{VALID}\n",
        f"ff{VALID[2:]}",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"cc-{TRACE}-00f067aa0ba902b7-01-a b",
        f"cc-{TRACE}-00f067aa0ba902b7-01-{'x' * 300}",
    ],
)
def test_another_value_has_none(value):
    assert trace_id_of(value) is None


def test_only_what_is_a_trace_context_is_sent_and_only_from_the_column_that_is_named():
    rows = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "trace": [VALID, "no trace", None]})
    assert list(traceparents(rows, declared(trace_context="trace").table)) == [VALID, None, None]
    assert list(traceparents(rows, declared().table)) == [None] * 3


@pytest.mark.parametrize(("column", "said"), [("id", "id is BIGINT"), ("span", "no column 'span'")])
def test_a_column_that_holds_no_trace_context_is_refused(column, said):
    with pytest.raises(ContractError, match=said) as caught:
        _ = declared(trace_context=column).table
    assert caught.value.fields["field"] == "table.trace_context"
