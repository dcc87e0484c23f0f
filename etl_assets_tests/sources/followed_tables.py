"""An installation whose pipelines follow each other's tables.

Belongs here: the declarations, changes of the followed table, and running steps. Does not belong here: what
tests expect.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.delta.log.entries import UNDO
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import ensure_table
from etl_assets.settings import load_settings
from etl_assets.steps.step import ReadMode, StepArguments, StepContext, StepReport, platform_table
from etl_assets_tests.commands.home import Home
from etl_assets_tests.sources.topics import START, SURVIVED, today

RATINGS: dict[str, Any] = {
    "name": "ratings",
    "source": {"type": "files", "path": "in/*.jsonl", "settle_seconds": 0},
    "columns": {
        "film_id": "bigint",
        "category": "string",
        "stars": "int",
        "changed_at": "bigint",
        "is_gone": "boolean",
    },
    "table": {
        "write_mode": "apply_changes",
        "keys": ["film_id"],
        "sequence_by": "changed_at",
        "apply_as_deletes": "is_gone",
        "except_column_list": ["is_gone"],
    },
}
"""Ratings of films, with deletes."""
COPY: dict[str, Any] = {
    "name": "copies",
    "source": {"type": "table", "table": "ratings"},
    "columns": {"film_id": "bigint", "category": "string", "stars": "int"},
    "table": {"keys": ["film_id"]},
}
"""The same rows, followed by key."""
CATEGORIES: dict[str, Any] = {
    "name": "categories",
    "source": {"type": "table", "table": "ratings"},
    "columns": {
        "category": "string",
        "stars": "int",
        "is_former": {"type": "boolean", "from": "table.deleted"},
    },
    "transforms": [
        {
            "type": "sql",
            "select": (
                "SELECT changed.category, count(r.film_id) AS films, coalesce(sum(r.stars), 0) AS stars,"
                " changed._offset FROM (SELECT category, max(_offset) AS _offset FROM input"
                " GROUP BY category) changed LEFT JOIN ratings r ON r.category = changed.category"
                " GROUP BY changed.category, changed._offset"
            ),
            "columns": {"category": "string", "films": "bigint", "stars": "bigint"},
        }
    ],
    "table": {"write_mode": "apply_changes", "keys": ["category"], "apply_as_deletes": "films = 0"},
}
"""Ratings by category, computed again for each category that has a change."""


@dataclass(slots=True)
class Installation:
    """A home with pipelines, whose steps run in this process."""

    home: Home
    session: Any = None
    root: str = "data"
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def create(
        cls, folder: Path, session: Any, *pipelines: Mapping[str, Any], **settings: Any
    ) -> Installation:
        home = Home(path=folder / "home").begin(start_date=START.isoformat(), **settings)
        (home.path / "pipelines").mkdir()
        (home.path / "in").mkdir()
        found = cls(home, session)
        for each in pipelines or (RATINGS, COPY, CATEGORIES):
            found.declare(each)
        return found

    def declare(self, spec: Mapping[str, Any]) -> None:
        (self.home.path / "pipelines" / f"{spec['name']}.yaml").write_text(json.dumps(spec), "utf-8")

    def land(self, *records: Mapping[str, Any]) -> None:
        """Land a file of records."""
        number = next(self._numbers)
        content = "".join(json.dumps(each) + "\n" for each in records)
        hidden = self.home.path / "in" / f".{number}"
        hidden.write_text(content, "utf-8")
        hidden.rename(self.home.path / "in" / f"{number:04}.jsonl")

    def rate(self, *ratings: tuple[Any, ...]) -> None:
        """Land ratings, and carry them to their table."""
        self.land_ratings(*ratings)
        self.run("ratings")

    def land_ratings(self, *ratings: tuple[Any, ...]) -> None:
        """Land ratings: film, category, stars; a film alone is deleted."""
        at = next(self._numbers)
        self.land(
            *(
                {"film_id": film, "changed_at": at, "is_gone": True}
                if not rest
                else {"film_id": film, "category": rest[0], "stars": rest[1], "changed_at": at}
                for film, *rest in ratings
            )
        )

    def run(self, *pipelines: str) -> list[StepReport]:
        """Run the steps of pipelines: to the accepted records, then to the table."""
        return [self.step(table) for name in pipelines for table in (f"{name}_source", name)]

    def step(self, table: str, mode: ReadMode = ReadMode.INCREMENTAL) -> StepReport:
        settings = load_settings({"ETL_ASSETS_HOME": str(self.home.path)})
        domain = settings.placement().reader()
        context = StepContext(
            session=lambda: self.session,
            domain=domain,
            clock=lambda: dt.datetime.now(dt.UTC),
            lock_wait_seconds=30,
        )
        arguments = StepArguments(settings=settings, context=context, mode=mode)
        return domain.catalog.stage(table).build_step(arguments).run([today()])

    @property
    def followed(self) -> Table:
        """The table `ratings`."""
        settings = load_settings({"ETL_ASSETS_HOME": str(self.home.path)})
        return platform_table("ratings", settings.placement().reader())

    def store(self, *ratings: tuple[Any, ...]) -> int:
        """Merge ratings into the followed table by delta-rs, without a step; a film alone is deleted.

        Each call is a version of the table, which is returned.
        """
        table = self.followed
        assert table.contract is not None
        version = ensure_table(table) + 1
        schema = data_file_schema(table.contract).append(pa.field("is_gone", pa.bool_()))
        rows = [
            {
                "film_id": film,
                **dict(zip(("category", "stars"), rest, strict=False)),
                "changed_at": version,
                "_offset": film,
                "_batch_id": version,
                "is_gone": not rest,
            }
            for film, *rest in ratings
        ]
        columns = {name: f"s.{name}" for name in table.contract.names}
        (
            DeltaTable(str(table.path))
            .merge(
                pa.Table.from_pylist(rows, schema=schema),
                "t.film_id = s.film_id",
                source_alias="s",
                target_alias="t",
            )
            .when_matched_delete("s.is_gone")
            .when_matched_update(columns)
            .when_not_matched_insert(columns, predicate="not s.is_gone")
            .execute()
        )
        return version

    def compact(self) -> None:
        """Write all rows of the followed table into one file."""
        DeltaTable(str(self.followed.path)).optimize.compact()

    def vacuum(self) -> None:
        """Remove the files that the newest version of the followed table does not have."""
        DeltaTable(str(self.followed.path)).vacuum(0, dry_run=False, enforce_retention_duration=False)

    def put_back(self, version: int) -> None:
        """Give the followed table the content of an older version, with the mark of an undo."""
        marked = CommitProperties(custom_metadata={"userMetadata": json.dumps({UNDO: {"to": version}})})
        DeltaTable(str(self.followed.path)).restore(version, commit_properties=marked)

    def create_again(self) -> None:
        """Remove the followed table, and create an empty one."""
        shutil.rmtree(self.followed.path)
        ensure_table(self.followed)

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[name] for name in columns) for row in self.home.rows(table, root=self.root))

    def ratings(self) -> list[tuple[Any, ...]]:
        return self.rows("ratings", ("film_id", "category", "stars"))

    def copies(self, table: str = "copies") -> list[tuple[Any, ...]]:
        return self.rows(table, ("film_id", "category", "stars"))

    def categories(self) -> list[tuple[Any, ...]]:
        return self.rows("categories", ("category", "films", "stars"))

    def expected_categories(self) -> list[tuple[Any, ...]]:
        found: dict[str, tuple[int, int]] = {}
        for _, category, stars in self.ratings():
            films, total = found.get(category, (0, 0))
            found[category] = (films + 1, total + int(Decimal(stars)))
        return sorted((category, *figures) for category, figures in found.items())

    def records(self, table: str = "copies_source") -> list[tuple[Any, ...]]:
        """The accepted records in their order: film, stars, and whether the row is gone."""
        return [
            (each["film_id"], each.get("stars"), each.get("table.deleted", False))
            for each in self._values(table)
        ]

    def held(self) -> list[tuple[Any, ...]]:
        """What the records of `copies` say: film, category and stars, the last record of each film."""
        films = {each["film_id"]: each for each in self._values("copies_source")}
        return sorted(
            (each["film_id"], each["category"], each["stars"])
            for each in films.values()
            if not each.get("table.deleted", False)
        )

    def held_with_former(self) -> list[tuple[Any, ...]]:
        """What the records of `categories` say: each row that came as often as it did not go."""
        rows: Counter[tuple[Any, ...]] = Counter()
        for each in self._values("categories_source"):
            row = (each["film_id"], each["category"], each["stars"])
            rows[row] += -1 if each.get("table.deleted", False) else 1
            assert rows[row] in (0, 1), f"{row} came or went twice"
        return sorted(rows.elements())

    def _values(self, table: str) -> list[dict[str, Any]]:
        rows = sorted(self.home.rows(table), key=lambda row: row["offset"])
        return [json.loads(row["record"]) for row in rows]


def run_and_die(home: Path, table: str, failpoint: str) -> None:
    """Run a step that needs no Spark, in a process that ends at a failpoint."""
    os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
    Installation(Home(path=home)).step(table)
    os._exit(SURVIVED)
