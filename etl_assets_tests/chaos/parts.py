"""The declared pipeline of a world: its files, what its tables must hold, and the steps that a run takes for
it.

Belongs here: what differs from the orders pipeline. Does not belong here: the rules themselves
(`declared/reference.py`).
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl_assets.placement.domains import FailureDomain
from etl_assets.settings import load_settings
from etl_assets.steps.step import ReadMode, Step, StepArguments, StepContext
from etl_assets_tests.declared.comparison import Comparison
from etl_assets_tests.declared.files import FORMATS, Record, data_file, random_record
from etl_assets_tests.declared.reference import Pipe

NAME = "parts"
STEPS = (f"{NAME}_source", NAME)
REGIONS = {f"part {number}": f"region {number}" for number in range(0, 6, 2)}
"""What the lookup finds: every other part."""
RECORDS_A_FILE = 12


@dataclass
class Parts:
    """The pipeline in a home folder, and all that it was given."""

    home: Path
    dice: random.Random
    pipe: Pipe = field(init=False)
    epoch: int = 0
    """How often everything was read: of records that come in one epoch any may be the first."""
    _known: list[Record] = field(default_factory=list)
    _files: int = 0

    def __post_init__(self) -> None:
        self.pipe = Pipe(name=NAME, has_id=True, format=self.dice.choice(FORMATS))

    def begin(self) -> None:
        """Declare it, and write the reference data of its lookup."""
        content = self.pipe.declaration()
        lookup = {
            "type": "lookup",
            "table": "customers",
            "on": {"name": "customer_id"},
            "columns": {"region": "customer_region"},
        }
        content["transforms"].append(lookup)
        (self.home / "pipelines").mkdir()
        (self.home / "pipelines" / f"{NAME}.yaml").write_text(json.dumps(content), "utf-8")
        reference = self.home / "landing" / "_reference"
        reference.mkdir(parents=True)
        lines = [f"{part},{region}" for part, region in REGIONS.items()]
        (reference / "customers.csv").write_text(
            "\n".join(["customer_id,customer_region", *lines, ""]), "utf-8"
        )

    def land(self, day: dt.date) -> None:
        """One more file: new records, some of which are rejected, repeat earlier ones or contradict them."""
        records: list[Record | bytes] = []
        for _ in range(RECORDS_A_FILE):
            chance = self.dice.random()
            if self._known and chance < 0.15:
                records.append(self.dice.choice(self._known))
                continue
            made = random_record(self.dice, len(self._known))
            if isinstance(made, dict):
                if self._known and chance < 0.25:
                    made["number"] = self.dice.choice(self._known)["number"]
                self._known.append(made)
            records.append(made)
        file = data_file(self.dice, self.pipe.format, f"f{self._files:05}", records)
        self._files += 1
        folder = self.home / "incoming" / NAME / day.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{file.name}"
        hidden.write_bytes(file.content)
        hidden.rename(folder / file.name)
        self.pipe.land(file, day, self.epoch)

    def wrong_rows(self, rows_of: Callable[[str], list[dict[str, Any]]]) -> Iterator[str]:
        """What is not as the reference has it; all that is there was read."""
        yield from Comparison(home=_Tables(rows_of), pipe=self.pipe).tables()
        for row in rows_of(NAME):
            if row["region"] != REGIONS.get(row["name"]):
                yield f"{NAME}: the region of {row['name']} is {row['region']}"


@dataclass(frozen=True, slots=True)
class _Tables:
    """Tables as a comparison reads them."""

    rows_of: Callable[[str], list[dict[str, Any]]]

    def rows(self, table: str, columns: Any = None, root: str = "") -> list[dict[str, Any]]:
        return self.rows_of(table)


def step(table: str, context: StepContext) -> Step:
    """The step that makes one of the pipeline's tables."""
    domain: FailureDomain = context.domain
    arguments = StepArguments(settings=load_settings(), context=context, mode=ReadMode.INCREMENTAL)
    return domain.catalog.stage(table).build_step(arguments)
