"""Which names and owners Dagster accepts.

A declaration is checked for them before Dagster sees it: one name that Dagster refuses would keep the assets
of all pipelines from being loaded. A test compares the names with Dagster's own.

Belongs here: what Dagster refuses. Does not belong here: the form of names that the platform asks for
(`spec.py`).
"""

from __future__ import annotations

import keyword
import re

_WORDS = (
    "context conf config meta arg_dict dict input_arg_dict output_arg_dict int str float bool input output"
    " type"
)
RESERVED = frozenset({*_WORDS.split(), *keyword.kwlist})
"""Names that no asset can have."""
FAILURE_DOMAINS = "failure_domains"
"""The asset that shows the failure domains of mirrored tables."""
_OWNER = re.compile(r"team:.+|\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}\b")


def owner(value: str) -> str:
    """Return an owner of assets as it was given.

    Raises:
        ValueError: Dagster does not accept it.
    """
    if not _OWNER.fullmatch(value):
        raise ValueError("it is neither an e-mail address nor `team:name`; such as `team:data-platform`")
    return value
