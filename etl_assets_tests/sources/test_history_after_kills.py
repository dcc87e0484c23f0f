"""The history of a mirrored captured table, written by commands of which some are killed, and after undo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets.query.sql import run_query
from etl_assets_tests.sources.captured import Captured

pytestmark = [pytest.mark.full, pytest.mark.kill, pytest.mark.spark, pytest.mark.timeout(600)]
HISTORY = "shop_film_history"
Change = tuple[str, int, str | None]


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    roots = {name: str(tmp_path / "roots" / name) for name in ("a", "b", "c")}
    domains = [{"name": name, "root": root} for name, root in roots.items()]
    found = Captured.create(postgres_server, tmp_path, platform={"domains": domains}, history=True)
    found.root = roots["a"]
    yield found
    found.close()


def history(shop: Captured) -> list[Change]:
    """The changes of the history, in the order of the log; each once."""
    rows = shop.home.rows(HISTORY, root=shop.root)
    # An update of the key is a delete and an insert at one place.
    places = {
        (row["lsn_in_source"], row["sequence_in_source"], row["operation_in_source"]): row for row in rows
    }
    assert len(places) == len(rows)
    return [
        (row["operation_in_source"], row["id"], row["title"])
        for row in (places[each] for each in sorted(places))
    ]


def versions(shop: Captured) -> list[dict[str, Any]]:
    asked = "SELECT id, title, is_current FROM shop_film_versions ORDER BY valid_from_lsn, id, title"
    found = run_query(asked, shop.settings.placement().reader())
    return [row for batch in found.batches() for row in batch.to_pylist()]


def run(shop: Captured, *command: str, failpoint: str = "") -> None:
    done = shop.home.call(*command or ("run",), failpoint=failpoint)
    assert done.code == (-9 if failpoint else 0), done


def table(shop: Captured) -> dict[int, str]:
    return {row["id"]: row["title"] for row in shop.home.rows("shop_film", root=shop.root)}


def test_each_change_is_there_once_whichever_command_dies_and_whatever_is_undone(shop):
    shop.make_tables("film")
    shop.discover()
    run(shop, failpoint=f"{Failpoint.TABLE_AFTER_COMMIT}@{HISTORY}")
    copied: list[Change] = [("copy", number, f"film {number}") for number in (1, 2, 3)]
    shop.execute(
        "UPDATE film SET title = 'two' WHERE id = 2",
        "BEGIN; INSERT INTO film VALUES (4, 'four', 4); UPDATE film SET title = '4' WHERE id = 4; COMMIT",
    )
    run(shop, failpoint=f"{Failpoint.TABLE_DURING_COMMIT}@{HISTORY}")
    run(shop)
    changed: list[Change] = [("update", 2, "two"), ("insert", 4, "four"), ("update", 4, "4")]
    assert history(shop) == copied + changed
    shop.execute("DELETE FROM film WHERE id = 1", "UPDATE film SET id = 9 WHERE id = 3")
    run(shop, failpoint=f"{Failpoint.STAGE_AFTER_WRITE}@{HISTORY}")
    run(shop)
    changed += [("delete", 1, None), ("delete", 3, None), ("insert", 9, "film 3")]
    assert history(shop) == copied + changed
    rows, had = table(shop), versions(shop)
    assert rows == {2: "two", 4: "4", 9: "film 3"}
    # Undo of the table: its history stays. The next run makes the table again.
    run(shop, "tables", "restore", "shop_film", "--to-version", "1", "--yes", "--no-run")
    assert table(shop) != rows
    assert (history(shop), versions(shop)) == (copied + changed, had)
    # Undo of the history: the next run makes it again.
    run(shop, "tables", "restore", HISTORY, "--to-version", "1", "--yes", "--no-run")
    assert history(shop) != copied + changed
    run(shop)
    assert table(shop) == rows
    assert (history(shop), versions(shop)) == (copied + changed, had)
    for root in ("b", "c"):
        assert shop.home.rows(HISTORY, root=str(shop.home.path.parent / "roots" / root)) == shop.home.rows(
            HISTORY, root=shop.root
        )
