"""Revisions of declarations, in SQLite and PostgreSQL: a change counts once, and only on what was seen."""

from __future__ import annotations

import threading

import pytest

from etl_assets.control.revisions import Revision, Revisions
from etl_assets.control.schema import REVISIONS


@pytest.fixture
def revisions(open_again):
    store = open_again()
    with store.writing() as connection:
        connection.execute(REVISIONS.delete())
    return Revisions(store)


def append(revisions: Revisions, name: str, declaration: dict | None, seen=None) -> Revision | None:
    return revisions.append(
        name, tenant="acme", declaration=declaration, actor="robot", seen=seen or revisions.newest()
    )


def test_the_newest_revision_of_each_counts_in_the_order_of_their_first(revisions):
    for name, declaration in (
        ("b", {"n": 1}),
        ("a", {"n": 2}),
        ("b", {"n": "é\u0000"}),
        ("c", {}),
        ("c", None),
    ):
        assert append(revisions, name, declaration) is not None
    newest = revisions.newest()
    assert newest.last_id == 5
    assert [(name, each.revision, each.declaration) for name, each in newest.of.items()] == [
        ("b", 2, {"n": "é\u0000"}),
        ("a", 1, {"n": 2}),
        ("c", 2, None),
    ]
    assert [each.pipeline for each in newest.live()] == ["b", "a"]
    assert [each.revision for each in revisions.of_pipeline("b")] == [2, 1]
    assert [each.revision for each in revisions.of_pipeline("b", before=2, limit=1)] == [1]
    assert newest.of["a"].at.tzinfo is not None


def test_a_change_decided_on_an_older_state_is_not_stored(revisions):
    before = revisions.newest()
    assert append(revisions, "a", {"n": 1}, before) is not None
    assert append(revisions, "b", {"n": 1}, before) is None
    assert [*revisions.newest().of] == ["a"]


def test_of_many_at_once_on_one_state_one_is_stored(revisions, open_again):
    seen, begin, made = revisions.newest(), threading.Barrier(6), []

    def change(number: int) -> None:
        own = Revisions(open_again())
        begin.wait()
        made.append(append(own, f"p{number}", {}, seen))

    threads = [threading.Thread(target=change, args=[number]) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert (len(made), sum(each is not None for each in made)) == (6, 1)
    assert revisions.newest().last_id == 1
