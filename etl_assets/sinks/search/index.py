"""The index of a table: an alias for readers, an alias for writers, and the index behind both.

Belongs here: which index holds a table, and from which version its documents count. Does not belong here:
writing documents (`bulk.py`).

```
film_rating_agg                           alias that readers search: documents of version 12 and later that
    │                                     are not deleted
    └── film_rating_agg-4f1c…             the index, named after the table's id
            ▲
film_rating_agg-4f1c…-from-12             alias that writers use: exists as long as no newer whole delivery
```

A whole delivery moves both aliases in one step of the cluster, and only if the writers' alias is still the
one that it began with. From then on nothing that an older writer sends is accepted, and nothing that it has
sent is found. The reason is in docs/decisions/0048.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from etl_assets.errors import SinkFenced
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sinks.search.client import SearchClient
from etl_assets.sinks.search.documents import STATE_FIELD
from etl_assets.sinks.search.mapping import check_fields

_SWEPT_AT_ONCE = 20_000
_FROM = "-from-"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldIndex:
    """An index that holds a table.

    Attributes:
        name: The index.
        floor: The version of the last whole delivery; documents of lower ones do not count.
        readable: Whether the readers' alias leads to it.
        replaces: Indexes of other tables that the readers' alias leads to.
    """

    name: str
    floor: int
    readable: bool
    replaces: tuple[str, ...]

    @property
    def writers_alias(self) -> str:
        """The alias through which documents are written."""
        return f"{self.name}{_FROM}{self.floor}"


class SearchIndex:
    """The index that holds a table for readers of one alias."""

    def __init__(
        self, client: SearchClient, alias: str, *, mapping: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> None:
        self._client = client
        self._alias = alias
        self._mapping = mapping
        self._settings = settings

    def find(self) -> dict[str, int]:
        """Return the indexes behind the readers' alias, each with its floor.

        Raises:
            SinkRefused: the name belongs to an index or alias that the platform did not create.
        """
        found = self._aliases(self._alias)
        for name, floor in found.items():
            if name == self._alias or floor is None:
                self._client.refused(
                    f"{self._alias} is not an alias of this platform (it is, or leads to, the index {name})",
                    fix="give the sink another `index`; the platform creates it",
                )
        return {name: floor for name, floor in found.items() if floor is not None}

    def adapt(self, name: str) -> None:
        """Add the columns that an index lacks.

        Raises:
            SinkRefused: a field has another type than its column.
        """
        answer = self._client.send("GET", f"/{name}/_mapping")
        if not answer.ok:
            self._client.refused(
                f"the mapping of {name} cannot be read: {answer.error}", fix="see the engine's log"
            )
        found = answer.body[name]["mappings"].get("properties", {})
        wanted = self._mapping["properties"]
        check_fields(wanted, found, index=name, sink=self._client.sink)
        answer = self._client.send("PUT", f"/{name}/_mapping", {"dynamic": "strict", "properties": wanted})
        if not answer.ok:
            self._client.refused(
                f"{name} does not take the mapping: {answer.error}",
                fix="give the sink another `index`, or correct its `mappings`",
            )

    def hold(self, table_id: str) -> HeldIndex:
        """Return the index of a table, created if it is missing."""
        name = f"{self._alias}-{hashlib.sha256(table_id.encode()).hexdigest()[:12]}"
        readable = self.find()
        others = tuple(sorted(set(readable) - {name}))
        floor = readable.get(name)
        if floor is None and (floor := self._aliases(name).get(name)) is None:
            self._create(name)
            floor = 0
        elif name not in readable:
            self.adapt(name)  # an earlier delivery did not come to its end
        return HeldIndex(name=name, floor=floor, readable=name in readable, replaces=others)

    def activate(self, held: HeldIndex, version: int) -> HeldIndex:
        """Let readers find the documents of a version and later ones, and nothing else.

        Raises:
            SinkFenced: another whole delivery was faster.
        """
        after = HeldIndex(name=held.name, floor=version, readable=True, replaces=())
        live = {
            "bool": {
                "filter": [{"range": {f"{STATE_FIELD}.version": {"gte": version}}}],
                "must_not": [{"term": {f"{STATE_FIELD}.deleted": True}}],
            }
        }
        actions: list[dict[str, Any]] = [
            {"remove": {"index": held.name, "alias": held.writers_alias, "must_exist": True}},
            {"add": {"index": held.name, "alias": after.writers_alias, "is_hidden": True}},
            *({"remove_index": {"index": name}} for name in held.replaces),
            {"add": {"index": held.name, "alias": self._alias, "filter": live}},
        ]
        failpoint(Failpoint.SEARCH_BEFORE_ALIAS)
        answer = self._client.send("POST", "/_aliases", {"actions": actions})
        # Its answer may have been lost, and the repeated request refused.
        if not answer.ok and self.find().get(held.name) != version:
            self.fenced(answer.error)
        failpoint(Failpoint.SEARCH_AFTER_ALIAS)
        return after

    def sweep(self, held: HeldIndex) -> int:
        """Remove documents that no longer count; return how many of them were rows."""
        rows = {"must_not": [{"term": {f"{STATE_FIELD}.deleted": True}}]}
        removed = self._sweep(held, rows)
        self._sweep(held, {})
        return removed

    def refresh(self, held: HeldIndex) -> None:
        """Let searches find what was written."""
        answer = self._client.send("POST", f"/{held.name}/_refresh")
        if not answer.ok:
            self.fenced(answer.error)

    def fenced(self, why: str) -> NoReturn:
        """Report that another writer has replaced the index or its content."""
        raise SinkFenced(
            f"{self._client.sink}: another writer has delivered the whole table meanwhile ({why})",
            fix="nothing: the step goes on from the position that it finds",
            sink=self._client.sink,
        )

    def _sweep(self, held: HeldIndex, more: Mapping[str, Any]) -> int:
        old = {"range": {f"{STATE_FIELD}.version": {"lt": held.floor}}}
        removed = 0
        while True:
            answer = self._client.send(
                "POST",
                f"/{held.name}/_delete_by_query",
                {"query": {"bool": {"filter": [old], **more}}, "max_docs": _SWEPT_AT_ONCE},
                # A document that a newer writer changes meanwhile is left to it.
                params={"conflicts": "proceed", "refresh": "true", "scroll_size": "5000"},
            )
            if not answer.ok:
                self.fenced(answer.error)
            if answer.body["failures"]:
                self._client.unavailable(
                    f"documents cannot be removed: {answer.body['failures'][0].get('cause')}"
                )
            removed += answer.body["deleted"]
            if answer.body["deleted"] < _SWEPT_AT_ONCE:
                return removed

    def _create(self, name: str) -> None:
        body = {
            "settings": self._settings,
            "mappings": self._mapping,
            "aliases": {f"{name}{_FROM}0": {"is_hidden": True}},
        }
        answer = self._client.send("PUT", f"/{name}", body)
        if not answer.ok and "resource_already_exists" not in answer.error:
            self._client.refused(
                f"the index {name} cannot be created: {answer.error}",
                fix="correct `mappings` or `settings` of the sink, or the name of its index",
            )

    def _aliases(self, name: str) -> dict[str, int | None]:
        """Return the indexes of a name, each with the floor that its writers' alias tells."""
        answer = self._client.send("GET", f"/{name}/_alias")
        if answer.status == 404:
            return {}
        if not answer.ok:
            self._client.refused(f"no aliases: {answer.error}", fix="correct the index's name")
        found: dict[str, int | None] = {}
        for index, details in answer.body.items():
            prefix = f"{index}{_FROM}"
            floors = [each.removeprefix(prefix) for each in details["aliases"] if each.startswith(prefix)]
            found[index] = max((int(each) for each in floors if each.isdecimal()), default=None)
        return found
