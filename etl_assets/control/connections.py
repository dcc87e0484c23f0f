"""Connections over REST: define, replace, delete, each as one change of a row of the control store.

A change is judged on a fresh snapshot and stored only if the connection did not change in between. What a
client sends as the value of a secret is encrypted before anything is stored.

Belongs here: what may follow what. Does not belong here: rows (`connection_rows.py`), what is wrong with a
connection (`settings/rest_connections.py`), HTTP (`routes/connections.py`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from etl_assets.control.connection_rows import ConnectionRows, StoredConnection
from etl_assets.control.snapshot import refresh_connections
from etl_assets.errors import (
    ControlStoreUnavailable,
    DeclarationConflict,
    DeclarationRefused,
    NotFound,
    SettingsError,
)
from etl_assets.installed import built_in_catalog
from etl_assets.pipelines.connection_rights import ConnectionRights
from etl_assets.pipelines.cross_checks import checked
from etl_assets.pipelines.origin import DEFAULT_TENANT
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.pipelines.problem import Problem, dotted
from etl_assets.settings import Settings
from etl_assets.settings.connections import CONNECTION_NAME
from etl_assets.settings.rest_connections import RestConnection, rest_connection
from etl_assets.settings.secret import Secret, TextWithSecrets

logger = logging.getLogger("etl_assets.serve")
Matches = Callable[[int], bool]
"""Returns whether a revision is the one that the client has seen."""
_MAX_TRIES = 20
MAX_NAME_CHARACTERS = 64
_MAPPINGS = ("headers", "options")
"""Fields whose keys are the client's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """Who changes what."""

    name: str
    tenant: str
    actor: str


class RestConnections:
    """The connections of an installation that are defined over REST.

    Every change raises `ControlStoreUnavailable` while the store does not answer, and `StorageFailed` if the
    snapshot cannot be written. It may be stored then, and can be repeated.
    """

    def __init__(self, settings: Settings, rows: ConnectionRows) -> None:
        self._settings, self._rows = settings, rows

    def refresh(self) -> Mapping[str, StoredConnection]:
        """Let the snapshot in the home folder have what is stored, and return it."""
        return refresh_connections(self._settings.home, self._rows)

    def create(self, name: object, content: Mapping[str, Any], tenant: str, actor: str) -> tuple[int, bool]:
        """Define a connection, and return its revision and whether it is new: not if it says the same.

        Raises:
            DeclarationRefused: it has problems.
            DeclarationConflict: the name is taken, or there are too many.
        """
        change = _Change(name=_usable_name(name), tenant=tenant, actor=actor)
        wanted = self._judged(change, content)

        def decide(all_: Mapping[str, StoredConnection]) -> Mapping[str, Any] | None:
            before = all_.get(change.name)
            if before is not None and before.tenant != tenant:
                raise _conflict(
                    change.name, "name-taken", "is a name of another tenant", "choose another name"
                )
            if before is not None and before.content is not None:
                if _same(before.content, content):
                    return None
                fix = f"`PUT /v1/connections/{change.name}`"
                raise _conflict(change.name, "exists", "is defined already", fix, before.revision)
            self._expect_room(all_, tenant)
            return wanted.content

        return self._stored(change, decide)

    def replace(
        self, name: str, content: Mapping[str, Any], tenant: str, actor: str, matches: Matches
    ) -> tuple[int, bool]:
        """Replace a connection, and return its revision and whether it is new: not if it says the same.

        Raises:
            NotFound: the tenant has no such connection.
            DeclarationRefused: it has problems.
            DeclarationConflict: it is of the platform file, is at another revision, or pipelines would break.
        """
        change = _Change(name=name, tenant=tenant, actor=actor)
        self._own(change, self.refresh())
        wanted = self._judged(change, content)

        def decide(all_: Mapping[str, StoredConnection]) -> Mapping[str, Any] | None:
            before = self._own(change, all_)
            if before.content is not None and _same(before.content, content):
                return None
            _expect_seen(before, matches)
            self._expect_unbroken(change, wanted)
            return wanted.content

        return self._stored(change, decide)

    def delete(self, name: str, tenant: str, actor: str, matches: Matches | None) -> None:
        """Delete a connection. Its name stays its tenant's, and its secrets are gone.

        Raises:
            NotFound: the tenant has no such connection.
            DeclarationConflict: it is of the platform file, is at another revision, or a pipeline uses it.
        """
        change = _Change(name=name, tenant=tenant, actor=actor)

        def decide(all_: Mapping[str, StoredConnection]) -> None:
            before = self._own(change, all_)
            if matches is not None:
                _expect_seen(before, matches)
            if users := users_of(self._settings, name, tenant):
                raise _conflict(
                    name, "in-use", f"is used by {', '.join(users)}", "change these pipelines first"
                )

        self._stored(change, decide, deletes=True)

    def _stored(
        self,
        change: _Change,
        decide: Callable[[Mapping[str, StoredConnection]], Mapping[str, Any] | None],
        *,
        deletes: bool = False,
    ) -> tuple[int, bool]:
        """Store what a decision returns, decided again while other changes come in between."""
        for _ in range(_MAX_TRIES):
            all_ = self.refresh()
            before = all_.get(change.name)
            content = decide(all_)
            if content is None and not deletes and before is not None:
                return before.revision, False
            made = self._rows.put(
                change.name,
                tenant=change.tenant,
                content=content,
                actor=change.actor,
                seen=0 if before is None else before.revision,
            )
            if made is not None:
                self.refresh()
                done = "deleted" if content is None else "defined"
                logger.info("the connection %s was %s by %s", change.name, done, change.actor)
                return made.revision, True
        raise ControlStoreUnavailable(
            f"the connection {change.name} was changed {_MAX_TRIES} times by others meanwhile",
            fix="send the request again",
        )

    def _judged(self, change: _Change, content: Mapping[str, Any]) -> RestConnection:
        """Return a connection that can be used, with its secrets encrypted."""
        taken = frozenset(self._settings.file_connections)
        if change.name in taken:
            why = "is a name of the platform file"
            raise _conflict(change.name, "name-taken", why, "choose another name")
        sealed, problems = sealed_content(content)
        judged = rest_connection(change.name, sealed, self._settings.rest, tenant=change.tenant)
        if problems := problems or judged.problems:
            raise _refused(change.name, problems)
        return judged

    def _own(self, change: _Change, all_: Mapping[str, StoredConnection]) -> StoredConnection:
        found = all_.get(change.name)
        if found is not None and found.tenant == change.tenant and found.content is not None:
            return found
        if change.name in connections_known_to(self._settings, change.tenant):
            raise _conflict(change.name, "read-only", "is of the platform file", "change it there")
        raise NotFound(f"there is no connection {change.name!r}", fix="`GET /v1/connections` lists them")

    def _expect_room(self, all_: Mapping[str, StoredConnection], tenant: str) -> None:
        most = self._settings.rest.max_connections
        if sum(each.tenant == tenant and each.content is not None for each in all_.values()) >= most:
            raise DeclarationConflict(
                f"the tenant {tenant!r} has {most:,} connections over REST, and may have no more",
                fix="delete one, or raise `rest.max_connections` of the platform file",
                kind="too-many-connections",
            )

    def _expect_unbroken(self, change: _Change, wanted: RestConnection) -> None:
        """Refuse a change with which a pipeline could not be used any more."""
        found, settings = wanted.connection, self._settings
        assert found is not None
        made = ConnectionRights(
            name=change.name, type=found.type, write=found.write, allows=found.allows, tenant=change.tenant
        )
        rights = [*(each for each in settings.connection_rights if each.name != change.name), made]
        files = settings.installed().files
        base = built_in_catalog(settings.pipelines.built_in, settings.connection_rights)
        for before, after in zip(files, checked(files, base, rights), strict=True):
            if before.spec is not None and after.spec is None:
                whose = after.name if after.tenant == change.tenant else "another tenant"
                why = f"is used by {whose} ({after.problems[0].message})"
                raise _conflict(change.name, "in-use", why, "change that pipeline first")


def users_of(settings: Settings, name: str, tenant: str) -> list[str]:
    """Return the names of a tenant's pipelines that name a connection, broken ones included."""
    files = (each for each in settings.installed().files if each.tenant == tenant)
    return sorted({each.name for each in files if name in _named(each)})


def connections_known_to(settings: Settings, tenant: str) -> list[str]:
    """Return the names of the platform file's connections that a tenant's declarations may name."""
    rights = settings.rest_rights
    names = settings.file_connections
    return [each for each in names if tenant == DEFAULT_TENANT or rights.allows_connection(each, tenant)]


def _named(file: PipelineFile) -> set[str]:
    content = file.tree.value
    if not isinstance(content, dict):
        return set()
    sinks = content.get("sinks")
    parts = [content.get("source"), *(sinks if isinstance(sinks, list) else ())]
    return {
        each["connection"]
        for each in parts
        if isinstance(each, dict) and isinstance(each.get("connection"), str)
    }


def sealed_content(content: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """Return a connection with each `{"value": …}` encrypted, and what is wrong with its secrets."""
    problems: list[Problem] = []

    def sealed(found: Any, place: tuple[str | int, ...]) -> Any:
        is_secret = (
            isinstance(found, dict) and [*found] == ["value"] and place[-1:] not in [(m,) for m in _MAPPINGS]
        )
        if is_secret and isinstance(found["value"], str):
            try:
                return Secret.of_value(found["value"])
            except SettingsError as error:
                problems.append(Problem(None, dotted(place), error.message, error.fix))
                return found
        if isinstance(found, dict):
            return {name: sealed(each, (*place, name)) for name, each in found.items()}
        if isinstance(found, list):
            return [sealed(each, (*place, index)) for index, each in enumerate(found)]
        if isinstance(found, str) and any(each.is_encrypted for each in TextWithSecrets(found).references):
            message = "an encrypted secret cannot be sent"
            problems.append(Problem(None, dotted(place), message, 'send its value again: `{"value": …}`'))
        return found

    return {name: sealed(each, (name,)) for name, each in content.items()}, tuple(problems)


def _same(stored: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
    """Return whether a client sends what is stored: a lost answer was repeated."""

    def opened(found: Any) -> Any:
        if isinstance(found, dict):
            return {name: opened(each) for name, each in found.items()}
        if isinstance(found, list):
            return [opened(each) for each in found]
        secret = Secret(found) if isinstance(found, str) and found.startswith("${encrypted:") else None
        return found if secret is None else {"value": secret.value()}

    try:
        return opened(dict(stored)) == dict(sent)
    except SettingsError:
        return False  # the key is not there any more: it is stored again


def _usable_name(name: object) -> str:
    if isinstance(name, str) and len(name) <= MAX_NAME_CHARACTERS and re.fullmatch(CONNECTION_NAME, name):
        return name
    fix = f"begin with a letter; lower case letters, digits, `_` and `-`; at most {MAX_NAME_CHARACTERS}"
    raise _refused("", (Problem(None, "name", "a connection needs a name", fix),))


def _refused(name: str, problems: tuple[Problem, ...]) -> DeclarationRefused:
    first = problems[0]
    return DeclarationRefused(
        f"the connection {name} has {len(problems):,} problem{'s' if len(problems) > 1 else ''}:"
        f" {first.field}: {first.message}",
        fix=first.fix,
        connection=name,
        problems=problems,
    )


def _expect_seen(before: StoredConnection, matches: Matches) -> None:
    if not matches(before.revision):
        raise _conflict(
            before.name,
            "changed",
            f"is at revision {before.revision}, which `If-Match` does not name",
            "read it again, and send the change with its `ETag`",
            before.revision,
        )


def _conflict(name: str, kind: str, why: str, fix: str, revision: int | None = None) -> DeclarationConflict:
    return DeclarationConflict(
        f"the connection {name} {why}", fix=fix, connection=name, kind=kind, revision=revision
    )
