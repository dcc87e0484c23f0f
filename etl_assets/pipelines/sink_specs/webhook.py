"""A sink of type webhook: one HTTP call for each row."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from etl_assets.pipelines.sink_specs.base import BaseSinkSpec
from etl_assets.pipelines.spec_fields import Spec

PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_PATH = re.compile(r"([A-Za-z0-9._~!$&'()*+,;=:@-]|\{[a-z][a-z0-9_]*\}|/(?!/))+")


class CallMethod(StrEnum):
    """Methods of HTTP that a call may have."""

    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class CallMethods(Spec):
    """The method of a call, by what happened to the row."""

    new: Annotated[CallMethod, Field(description="a row whose key no earlier delivery had")] = CallMethod.POST
    changed: Annotated[CallMethod, Field(description="any other row")] = CallMethod.PUT
    deleted: Annotated[CallMethod, Field(description="a key that has no row any more")] = CallMethod.DELETE


def _path(value: str) -> str:
    if not _PATH.fullmatch(value) or value.startswith("/") or value.endswith("/"):
        raise ValueError(
            "it is not a path; write it without address, query and slash at its ends, such as `suppliers` or"
            " `suppliers/{supplier_id}`"
        )
    if any(part in (".", "..") for part in value.split("/")):
        raise ValueError("`.` and `..` are not allowed; write the path itself")
    return value


class WebhookSinkSpec(BaseSinkSpec):
    """An HTTP call for each new, changed and deleted row, each with an `Idempotency-Key`.

    A call is repeated after a kill or a lost answer, with the same key: for a receiver that honours the key
    each row arrives exactly once, for others at least once.
    """

    connection_type: ClassVar[str] = "webhook"
    kind: ClassVar[str] = "webhook"
    withdraws: ClassVar[bool] = False
    type: Literal["webhook"]
    path: Annotated[
        str,
        AfterValidator(_path),
        Field(
            min_length=1,
            max_length=200,
            examples=["suppliers", "suppliers/{supplier_id}"],
            description="path below the connection's address; `{column}` is the value of a key column",
        ),
    ]
    methods: Annotated[CallMethods, Field(description="the method of each kind of change")] = CallMethods()

    @property
    def target_field(self) -> str:
        """The field that names the target."""
        return "path"

    @property
    def target_name(self) -> str:
        """The path as declared."""
        return self.path

    @property
    def path_columns(self) -> tuple[str, ...]:
        """The columns whose values are parts of the path."""
        return tuple(PLACEHOLDER.findall(self.path))
