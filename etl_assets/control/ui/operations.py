"""What a GraphQL request of the UI does, and which scope it needs.

The document decides. Names of operations do not, as the client chooses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    InlineFragmentNode,
    OperationDefinitionNode,
    OperationType,
    parse,
)

from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.tokens import Scope

MAX_CHARACTERS = 200_000
MAX_TOKENS = 20_000
OPERATE = frozenset(
    {
        "addDynamicPartition",
        "cancelPartitionBackfill",
        "freeConcurrencySlots",
        "freeConcurrencySlotsForRun",
        "launchMultipleRuns",
        "launchPartitionBackfill",
        "launchPipelineExecution",
        "launchPipelineReexecution",
        "launchRun",
        "launchRunReexecution",
        "logTelemetry",
        "reexecutePartitionBackfill",
        "reloadRepositoryLocation",
        "reloadWorkspace",
        "resetSchedule",
        "resetSensor",
        "resumePartitionBackfill",
        "scheduleDryRun",
        "sensorDryRun",
        "setAutoMaterializePaused",
        "setNuxSeen",
        "setSensorCursor",
        "startSchedule",
        "startSensor",
        "stopRunningSchedule",
        "stopSensor",
        "terminatePipelineExecution",
        "terminateRun",
        "terminateRuns",
    }
)
"""Mutations of Dagster that the scope `operate` allows. All others need `admin`: they delete runs or history,
change limits, or are of a later version of Dagster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What a document has.

    Attributes:
        mutations: The mutations of Dagster that it may do: fields of its mutations, through fragments.
        has_mutation: Whether one of its operations is a mutation.
        has_only_subscriptions: Whether all of them are subscriptions.
    """

    mutations: frozenset[str]
    has_mutation: bool
    has_only_subscriptions: bool

    @property
    def scope(self) -> Scope:
        """The scope that it needs."""
        if not self.has_mutation:
            return Scope.READ
        return Scope.OPERATE if self.mutations <= OPERATE else Scope.ADMIN


def operations_of(query: Any) -> Operations:
    """Return what a document has, whichever of its operations is asked for.

    Raises:
        ProblemDetails: it is no GraphQL, or is too long.
    """
    if not isinstance(query, str):
        raise _refused("send the text of one operation in `query`; stored and batched queries are not taken")
    if len(query) > MAX_CHARACTERS:
        raise ProblemDetails(413, "query-too-long", f"the query has more than {MAX_CHARACTERS:,} characters")
    return _read(query)


@lru_cache(maxsize=256)
def _read(query: str) -> Operations:
    try:
        document = parse(query, no_location=True, max_tokens=MAX_TOKENS)
    except GraphQLError as error:
        raise _refused(f"the query is not GraphQL: {error.message}") from None
    except RecursionError:
        raise _refused("the query is nested too deeply") from None
    found = [each for each in document.definitions if isinstance(each, OperationDefinitionNode)]
    if not found:
        raise _refused("the query has no operation")
    mutations = [each for each in found if each.operation is OperationType.MUTATION]
    return Operations(
        mutations=frozenset(_fields(document, mutations)),
        has_mutation=bool(mutations),
        has_only_subscriptions=all(each.operation is OperationType.SUBSCRIPTION for each in found),
    )


def _fields(document: DocumentNode, operations: Sequence[OperationDefinitionNode]) -> Iterator[str]:
    """Yield the fields of operations themselves, those of their fragments included, each fragment once."""
    fragments = {
        each.name.value: each.selection_set
        for each in document.definitions
        if isinstance(each, FragmentDefinitionNode)
    }
    waiting = [selected for each in operations for selected in each.selection_set.selections]
    while waiting:
        match waiting.pop():
            case FieldNode() as field:
                yield field.name.value
            case InlineFragmentNode() as inline:
                waiting.extend(inline.selection_set.selections)
            case FragmentSpreadNode() as spread if spread.name.value in fragments:
                waiting.extend(fragments.pop(spread.name.value).selections)


def _refused(detail: str) -> ProblemDetails:
    return ProblemDetails(400, "query-refused", detail, errors=[{"message": detail}])
