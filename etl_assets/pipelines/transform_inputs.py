"""Whose rows each transform of a declaration takes: those of the one before it, or of the ones that its
`inputs` name.

Belongs here: names and positions, what is wrong with them, and the columns of several inputs together. Does
not belong here: what a transform does with the rows (`transforms/declared_transforms.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from etl_assets.contracts.columns import Column
from etl_assets.errors import ContractError
from etl_assets.pipelines.problem import Path, near
from etl_assets.pipelines.transform_specs import RECORDS, Transform

OF_RECORDS = -1
"""The position of the parsed records, which no transform has made."""


def inputs_of(transforms: Sequence[Transform]) -> tuple[tuple[int, ...], ...]:
    """Return, for each transform, the positions of those whose rows it takes.

    Raises:
        ContractError: an input is none of the transforms above, or nothing takes a transform's rows. Carries
            `field`.
    """
    for path, message, fix in input_problems(transforms):
        raise ContractError(message, fix=fix, field=".".join(map(str, path)))
    positions = _positions(transforms)
    return tuple(
        tuple(positions[name] for name in transform.inputs) or (index - 1,)
        for index, transform in enumerate(transforms)
    )


def input_problems(transforms: Sequence[Transform]) -> Iterator[tuple[Path, str, str]]:
    """Yield what is wrong with the names and inputs of transforms: the place, the problem and the fix."""
    positions = _positions(transforms)
    taken, wrong = set(), False
    for index, transform in enumerate(transforms):
        if transform.name is not None and positions[transform.name] != index:
            wrong = True
            yield (
                ("transforms", index, "name"),
                f"`{transform.name}` is the name of transforms[{positions[transform.name]}] too",
                "give each transform a name of its own",
            )
        for number, name in enumerate(transform.inputs):
            if positions.get(name, index) < index:
                continue
            wrong = True
            yield ("transforms", index, "inputs", number), *_no_input(name, index, positions)
        taken |= {positions.get(name) for name in transform.inputs} or {index - 1}
    if wrong:
        return  # A name with a typing error would be reported twice.
    for index, transform in enumerate(transforms[:-1]):
        if index not in taken:
            name = transform.name or "it"
            naming = "" if transform.name else "give it a `name`, and "
            yield (
                ("transforms", index),
                f"nothing takes the rows of {label_of(transforms, index)}",
                f"{naming}name {name} in the `inputs` of a later transform, or take it out",
            )


def label_of(transforms: Sequence[Transform], index: int) -> str:
    """Return how messages name the rows of a transform: by its name, or else its place."""
    name = RECORDS if index == OF_RECORDS else transforms[index].name
    return f"transforms[{index}]" if name is None else f"`{name}`"


def united_columns(inputs: Sequence[tuple[str, Sequence[Column]]], place: str) -> tuple[Column, ...]:
    """Return the columns of several inputs together, in the order in which they are met.

    A column that an input lacks is null in its rows. A rule holds if it holds in every input that has the
    column.

    Args:
        inputs: The label and the columns of each.
        place: The transform, such as `transforms.2`.

    Raises:
        ContractError: a column has different types. Carries `field`.
    """
    made: dict[str, tuple[str, Column]] = {}
    for label, columns in inputs:
        for column in columns:
            first, before = made.get(column.name, (label, column))
            if before.type != column.type:
                raise ContractError(
                    f"the column {column.name!r} is {before.type} in {first}, and {column.type} in {label}",
                    fix="convert it in one of them by a transform of type map, or name one of the columns"
                    " otherwise",
                    field=f"{place}.inputs",
                )
            made[column.name] = first, _both(before, column)
    shared = set.intersection(*({column.name for column in columns} for _, columns in inputs))
    return tuple(
        column if name in shared else replace(column, nullable=True) for name, (_, column) in made.items()
    )


def _both(one: Column, other: Column) -> Column:
    return replace(
        one,
        nullable=one.nullable or other.nullable,
        rules=tuple(rule for rule in one.rules if rule in other.rules),
        derived_from=tuple(dict.fromkeys((*one.derived_from, *other.derived_from))),
    )


def _positions(transforms: Sequence[Transform]) -> dict[str, int]:
    """Return the position of each name; of a name that is given twice, the first."""
    positions = {RECORDS: OF_RECORDS}
    for index, transform in enumerate(transforms):
        if transform.name is not None:
            positions.setdefault(transform.name, index)
    return positions


def _no_input(name: str, index: int, positions: dict[str, int]) -> tuple[str, str]:
    """Return the problem and the fix of a name that is none of an input of a transform."""
    if (position := positions.get(name)) is not None:
        if position == index:
            return f"`{name}` is this transform itself", "name one that stands above it"
        return f"`{name}` stands below: transforms[{position}]", "move it above, since inputs are made first"
    above = [each for each, position in positions.items() if position < index]
    return f"no transform above is named `{name}`", f"{near(name, above)}inputs here: {', '.join(above)}"
