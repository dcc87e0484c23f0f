"""Generate docs/tables.md from the contracts of the tables.

Belongs here: the form of a contract in Markdown. Does not belong here: anything a contract does not say.

`python -m etl_assets.tables_documentation > docs/tables.md` writes the page; a test fails when it is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.reasons import OUTCOME_MEANINGS, REASON_MEANINGS
from etl_assets.installed import built_in_catalog
from etl_assets.markdown_table import markdown_table

_INTRODUCTION = """\
# Tables

<!-- Written from the tables' contracts by `python -m etl_assets.tables_documentation > docs/tables.md`. -->

Every table is a Delta table and a Dagster asset of the same name. The *merge key* tells two rows apart; it is
unique in the whole table, not only in one day. The *ordering* column decides between two rows of one key: the
higher value wins. Times are UTC. A column may be null only where it says so.
"""


def render() -> str:
    """Return the whole page."""
    return "\n".join(_lines())


def render_table(contract: TableContract) -> str:
    """Return the section about one table."""
    return "\n".join(_table_lines(contract))


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for contract in built_in_catalog().tables:
        yield from _table_lines(contract)
    yield from _words("Outcomes", "What became of a record at one stage.", OUTCOME_MEANINGS.items())
    yield from _words("Dead letter reasons", "Why a record was refused.", REASON_MEANINGS.items())


def _table_lines(contract: TableContract) -> Iterator[str]:
    yield f"## {contract.name}\n"
    yield f"{contract.description}\n"
    yield f"- Merge key: {_codes(contract.merge_key)}"
    if contract.ordering:
        yield f"- Ordering: {_codes([contract.ordering])}"
    if contract.delta_partition:
        yield f"- Delta partition: {_codes(contract.delta_partition)}"
    if contract.append_only:
        yield "- Only ever appended to"
    yield ""
    yield from markdown_table(
        ["column", "type", "null", "meaning", "rules", "made from"], map(_cells, contract.columns)
    )


def _cells(column: Column) -> list[str]:
    return [
        _codes([column.name]),
        column.type,
        "yes" if column.nullable else "",
        column.description,
        "; ".join(rule.reason for rule in column.rules),
        _codes(column.derived_from),
    ]


def _words(title: str, introduction: str, meanings: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"{introduction}\n"
    yield from markdown_table(["word", "meaning"], ([_codes([word]), meaning] for word, meaning in meanings))


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.stdout.write(render())
