"""The reference data of a landing folder: the region of each customer.

Belongs here: the file `_reference/customers.csv`. Does not belong here: the table that is loaded from it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from etl_assets.errors import InputError
from etl_assets.orders.generator.writer import durable_file

CUSTOMERS_FILE = "_reference/customers.csv"
CUSTOMERS_HEADER = ["customer_id", "customer_region"]


def add_customers(landing: Path, regions: Mapping[str, str]) -> bool:
    """Add customers to the reference file, durable when this returns.

    The file is merged, because several generators share a landing folder: other customers stay, and a
    customer who is already in the file gets the region given now. Rows are sorted by customer_id.

    Args:
        landing: The landing folder.
        regions: Region by customer_id.

    Returns:
        Whether the file changed.

    Raises:
        InputError: The existing file cannot be read, or has other columns.
        LandingNotWritten: The file system refused.
    """
    path = landing / CUSTOMERS_FILE
    known = _read(path)
    if known is not None and regions.items() <= known.items():
        return False
    with durable_file(path) as handle:
        handle.write(_formatted((known or {}) | dict(regions)))
    return True


def _read(path: Path) -> dict[str, str] | None:
    """Return region by customer_id from the file; None if there is no file."""
    line = 1
    try:
        with path.open(encoding="utf-8", newline="") as text:
            rows = csv.reader(text, strict=True)
            if next(rows, []) != CUSTOMERS_HEADER:
                raise ValueError(f"the columns are not {','.join(CUSTOMERS_HEADER)}")
            regions: dict[str, str] = {}
            for row in rows:
                line = rows.line_num
                customer, region = row
                regions[customer] = region
    except FileNotFoundError:
        return None
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(
            f"{path}, line {line}: the reference data cannot be read: {error}",
            fix="correct the file, or move it away; it is written again without the customers only it has",
            file=str(path),
            line=line,
        ) from error
    return regions


def _formatted(regions: Mapping[str, str]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CUSTOMERS_HEADER)
    writer.writerows(sorted(regions.items()))
    return text.getvalue().encode()
