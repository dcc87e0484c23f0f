"""Connections that came over REST: what one may use, and the snapshot of all in the home folder.

The snapshot is what every process reads, so that none waits for the control store. The server writes it
(`control/snapshot.py`). What `rest` in the platform file allows is checked each time it is read.

Belongs here: from JSON to a connection with its problems. Does not belong here: storing
(`control/connections.py`).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from etl_assets.pipelines.problem import Problem, dotted
from etl_assets.settings.connections import (
    AnyConnection,
    Connection,
    PostgresConnection,
    SearchConnection,
    SqlConnection,
    WebhookConnection,
    type_of,
)
from etl_assets.settings.rest import RestSettings
from etl_assets.settings.secret import NO_REFERENCE, Secret, TextWithSecrets

logger = logging.getLogger("etl_assets.settings")
SNAPSHOT = "rest_connections.json"
SQL_DRIVERS = ("mariadb+pymysql", "mysql+pymysql")
"""Drivers that connect to the host of their URL and to nothing else."""
TYPES = tuple(map(type_of, (PostgresConnection, SqlConnection, SearchConnection, WebhookConnection)))
"""Types whose clients connect to an address that was checked.

Not Kafka and object stores: a broker names further hosts, and the clients resolve names by themselves. Not
folders and DuckDB: they are files of this machine.
"""
_FILES = ("sslrootcert", "ca_file")
_CONNECTION: TypeAdapter[AnyConnection] = TypeAdapter(AnyConnection)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestConnection:
    """A connection that came over REST.

    Attributes:
        name: Its name.
        tenant: Whose it is.
        revision: Number of its last change.
        content: What was stored: secrets are references, or encrypted.
        connection: The connection; None with problems.
        problems: What is wrong with it.
    """

    name: str
    tenant: str
    revision: int
    content: Mapping[str, Any]
    connection: AnyConnection | None
    problems: tuple[Problem, ...] = ()


def snapshot_path(home: Path) -> Path:
    """Return the snapshot of an installation, which may not exist."""
    return home / SNAPSHOT


def read_rest_connections(
    home: Path, rest: RestSettings, taken: frozenset[str]
) -> tuple[RestConnection, ...]:
    """Return the connections of the snapshot. It is read again when it has changed.

    Args:
        home: The home folder.
        rest: What connections over REST may use.
        taken: Names of the connections of the platform file, which go first.
    """
    path = snapshot_path(home)
    try:
        status = path.stat()
    except OSError:
        return ()
    return _read(path, (status.st_ino, status.st_mtime_ns, status.st_size), rest, taken)


@functools.lru_cache(maxsize=8)
def _read(
    path: Path, stamp: tuple[int, int, int], rest: RestSettings, taken: frozenset[str]
) -> tuple[RestConnection, ...]:
    try:
        entries = orjson.loads(path.read_bytes())["connections"]
        return tuple(
            rest_connection(
                str(each["name"]),
                dict(each["connection"]),
                rest,
                tenant=str(each["tenant"]),
                revision=int(each["revision"]),
                taken=taken,
            )
            for each in entries
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.error(
            "%s cannot be read (%s), so connections over REST cannot be used: `etl-assets serve` writes it"
            " again from the control store",
            path,
            type(error).__name__,
        )
        return ()


def rest_connection(
    name: str,
    content: Mapping[str, Any],
    rest: RestSettings,
    *,
    tenant: str,
    revision: int = 0,
    taken: frozenset[str] = frozenset(),
) -> RestConnection:
    """Return a connection with its problems."""
    found, problems = _validated(content, rest)
    if name in taken:
        problems = (*problems, Problem(None, "name", f"the platform file has a connection `{name}`", _RENAME))
    return RestConnection(
        name=name,
        tenant=tenant,
        revision=revision,
        content=content,
        connection=None if problems or found is None else found.limited_to(rest.allowed_hosts),
        problems=problems,
    )


_SENT = 'write `${env:NAME}`, `${file:/path}` or `{"value": "…"}`'
_RENAME = "give it another name"


def _validated(
    content: Mapping[str, Any], rest: RestSettings
) -> tuple[AnyConnection | None, tuple[Problem, ...]]:
    kind = content.get("type")
    if kind not in TYPES:
        message = "a connection over REST is of a type that reaches one host"
        fix = f"use one of {', '.join(f'`{each}`' for each in TYPES)}, or define it in the platform file"
        value = kind if isinstance(kind, str) else None
        return None, (Problem(None, "type", message, fix, value, TYPES),)
    try:
        found = _CONNECTION.validate_python(dict(content))
    except ValidationError as error:
        return None, tuple(map(_problem, error.errors()))
    return found, tuple(_right_problems(found, rest))


def _problem(error: Any) -> Problem:
    """Return a problem by pydantic's, without the value found: it may be a secret in the wrong place."""
    place = tuple(each for each in error["loc"][1:] if each != "[key]")
    reason = str(error.get("ctx", {}).get("error", error["msg"]))
    if reason == NO_REFERENCE:
        message, fix = "a secret is sent apart from other texts", _SENT
        return Problem(None, dotted(place), message, fix)
    return Problem(None, dotted(place), reason, "see docs/settings.md for its fields and their values")


def _right_problems(found: Connection, rest: RestSettings) -> Iterator[Problem]:
    """Yield what a connection over REST may not use."""
    yield from _host_problems(found, rest)
    for secret in found.secrets():
        yield from _secret_problems(secret, rest)
    for name in _FILES:
        path = getattr(found, name, None)
        if path is not None and not _is_below(path, rest.secret_folders):
            yield _refused(name, "this file", "secret_folders", rest.secret_folders)
    if isinstance(found, PostgresConnection) and (found.user is None or found.password is None):
        yield Problem(
            None,
            "password",
            "a connection over REST needs user and password",
            "give both; see docs/rest-api.md",
        )
    if isinstance(found, SqlConnection):
        if found.driver not in SQL_DRIVERS:
            allowed = ", ".join(f"`{each}`" for each in SQL_DRIVERS)
            message = "a connection over REST may not use this driver"
            yield Problem(None, "driver", message, f"use one of {allowed}", found.driver, SQL_DRIVERS)
        if found.host is None or found.port is None:
            yield Problem(None, "host", "a connection over REST needs host and port", "give both")
        if found.options:
            yield Problem(None, "options", "a connection over REST has no options", "leave them out")


def _host_problems(found: Connection, rest: RestSettings) -> Iterator[Problem]:
    try:
        endpoints = found.endpoints()
    except ValueError as error:
        yield Problem(None, "url", str(error), "write `https://`, the host, and the port if it is another")
        return
    for each in endpoints:
        if not rest.allowed_hosts.allows(each.host, each.port):
            yield _refused(each.field, f"{each.host}:{each.port}", "hosts", rest.hosts)


def _secret_problems(secret: Secret, rest: RestSettings) -> Iterator[Problem]:
    if secret.variable is not None and secret.variable not in rest.secrets:
        yield _refused("secrets", f"the environment variable {secret.variable}", "secrets", rest.secrets)
    if secret.path is not None and not _is_below(str(secret.path), rest.secret_folders):
        yield _refused("secrets", f"the file {secret.path}", "secret_folders", rest.secret_folders)


def _refused(field: str, what: str, setting: str, allowed: tuple[str, ...]) -> Problem:
    return Problem(
        None,
        field,
        f"a connection over REST may not use {what}",
        f"allowed: {', '.join(allowed) or 'none'} (`rest.{setting}` of the platform file)",
        allowed=allowed,
    )


def _is_below(path: str, folders: tuple[str, ...]) -> bool:
    there = PurePosixPath(path)
    return ".." not in there.parts and any(
        there != PurePosixPath(each) and there.is_relative_to(each) for each in folders
    )


def shown(content: Any) -> Any:
    """Return the content of a connection as clients see it: an encrypted secret is `{"encrypted": true}`."""
    if isinstance(content, dict):
        return {name: shown(each) for name, each in content.items()}
    if isinstance(content, list | tuple):
        return [shown(each) for each in content]
    if isinstance(content, str) and any(each.is_encrypted for each in TextWithSecrets(content).references):
        return {"encrypted": True}
    return content
