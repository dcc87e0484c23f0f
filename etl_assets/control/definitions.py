"""Pipelines declared over REST: create, replace, delete, each as one revision in the control store.

A change is judged on a fresh snapshot and appended only if no other change came in between, so two servers
never store two declarations that exclude each other. A change that is repeated because its answer was lost
is recognized by its content and stores nothing.

Belongs here: what may follow what. Does not belong here: rows (`revisions.py`), what is wrong with a
declaration (`declarations.py`), HTTP (`routes/definitions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from etl_assets.control.declarations import broken_without, declaration_of, judged
from etl_assets.control.revisions import NewestRevisions, Revision, Revisions
from etl_assets.control.snapshot import refresh_snapshot
from etl_assets.control.states import ControlState
from etl_assets.errors import ControlStoreUnavailable, DeclarationConflict, DeclarationRefused, NotFound
from etl_assets.installed import Installed
from etl_assets.pipelines.origin import DeclarationOrigin
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.settings import Settings

_MAX_TRIES = 20
"""Times that another change may come in between, before a client has to send its change again."""

_BUSY = frozenset(state for state in ControlState if state.has_runner) | {ControlState.RUN_REQUESTED}
"""States in which a runner may work on the pipeline, or is about to."""
Matches = Callable[[int], bool]
"""Returns whether a revision is the one that the client has seen."""


class Definitions:
    """The pipelines of an installation that are declared over REST.

    Every change raises `ControlStoreUnavailable` while the store does not answer, and `StorageFailed` if the
    snapshot cannot be written. It may be stored then, and can be repeated.

    Args:
        settings: The platform file.
        revisions: The revisions in the control store.
        state_of: Returns the state of a pipeline's run control.
    """

    def __init__(
        self,
        settings: Settings,
        revisions: Revisions,
        state_of: Callable[[str], ControlState] = lambda name: ControlState.IDLE,
    ) -> None:
        self._settings, self._revisions, self._state_of = settings, revisions, state_of

    def refresh(self) -> NewestRevisions:
        """Let the snapshot in the home folder have the newest revisions, and return them."""
        return refresh_snapshot(self._settings.home, self._revisions)

    def create(self, content: Mapping[str, Any], tenant: str, actor: str) -> tuple[Revision, bool]:
        """Declare a pipeline, and return its revision and whether it is new: not if it says the same.

        Raises:
            DeclarationRefused: the declaration has problems.
            DeclarationConflict: the name is taken, there are too many, or others would break.
        """
        declaration = declaration_of(self._settings, content, None, tenant)
        name = declaration.name

        def change(newest: NewestRevisions) -> Mapping[str, Any] | None:
            before = newest.of.get(name)
            if before is not None and before.tenant == tenant and before.declaration is not None:
                if before.declaration == content:
                    return None
                raise _conflict(
                    name, "exists", "is declared already", f"`PUT /v1/pipelines/{name}`", before.revision
                )
            self._expect_free(name, tenant, before)
            self._expect_room(newest, tenant)
            self._expect_usable(declaration)
            return content

        return self._change(name, tenant, actor, change)

    def replace(
        self, name: str, content: Mapping[str, Any], tenant: str, actor: str, matches: Matches
    ) -> tuple[Revision, bool]:
        """Replace a declaration, and return its revision and whether it is new: not if it says the same.

        Raises:
            NotFound: the tenant has no such pipeline.
            DeclarationRefused: the declaration has problems.
            DeclarationConflict: it is not declared over REST, is at another revision, or others would break.
        """
        whole = {"name": name, **content}
        declaration = declaration_of(self._settings, content, name, tenant)

        def change(newest: NewestRevisions) -> Mapping[str, Any] | None:
            before = self._own(name, tenant, newest)
            if before.declaration == whole:
                return None
            _expect_seen(before, matches)
            self._expect_usable(declaration)
            return whole

        return self._change(name, tenant, actor, change)

    def delete(self, name: str, tenant: str, actor: str, matches: Matches | None) -> Revision:
        """Delete a pipeline. Its tables and its name stay its tenant's.

        Raises:
            NotFound: the tenant has no such pipeline.
            DeclarationConflict: it is not declared over REST, is at another revision, has a run, or others
                need it.
        """

        def change(newest: NewestRevisions) -> None:
            before = self._own(name, tenant, newest)
            if matches is not None:
                _expect_seen(before, matches)
            if (state := self._state_of(name)) in _BUSY:
                raise _conflict(name, "run-under-way", f"is {state}", "cancel its run first, or wait for it")
            if others := broken_without(self._settings, name, tenant):
                raise _in_use(name, tenant, others)

        return self._change(name, tenant, actor, change, deletes=True)[0]

    def _change(
        self,
        name: str,
        tenant: str,
        actor: str,
        change: Callable[[NewestRevisions], Mapping[str, Any] | None],
        *,
        deletes: bool = False,
    ) -> tuple[Revision, bool]:
        """Append what a decision returns, decided again while other changes come in between."""
        for _ in range(_MAX_TRIES):
            newest = self.refresh()
            declaration = change(newest)
            if declaration is None and not deletes:
                return newest.of[name], False
            made = self._revisions.append(
                name, tenant=tenant, declaration=declaration, actor=actor, seen=newest
            )
            if made is not None:
                self.refresh()
                return made, True
        raise ControlStoreUnavailable(
            f"other pipelines were declared {_MAX_TRIES} times while {name} was", fix="send the request again"
        )

    def _own(self, name: str, tenant: str, newest: NewestRevisions) -> Revision:
        """Return the newest revision of a pipeline that a tenant has over REST."""
        found = newest.of.get(name)
        if found is not None and found.tenant == tenant and found.declaration is not None:
            return found
        if (why := _read_only(name, tenant, self._settings.installed())) is not None:
            raise _conflict(name, "read-only", why, "change it there")
        raise NotFound(f"there is no pipeline {name!r}", fix="`GET /v1/pipelines` lists them")

    def _expect_free(self, name: str, tenant: str, before: Revision | None) -> None:
        if before is not None and before.tenant != tenant:
            raise _conflict(name, "name-taken", "is a name of another tenant", "choose another name")
        if (why := _read_only(name, tenant, self._settings.installed())) is not None:
            raise _conflict(name, "name-taken", why, "choose another name")

    def _expect_room(self, newest: NewestRevisions, tenant: str) -> None:
        most = self._settings.rest.max_pipelines
        if sum(each.tenant == tenant for each in newest.live()) >= most:
            raise DeclarationConflict(
                f"the tenant {tenant!r} has {most:,} pipelines over REST, and may have no more",
                fix="delete one, or raise `rest.max_pipelines` of the platform file",
                kind="too-many-pipelines",
            )

    def _expect_usable(self, declaration: PipelineFile) -> None:
        verdict = judged(self._settings, declaration)
        if problems := verdict.file.problems:
            raise DeclarationRefused(
                f"the declaration of {declaration.name} has {len(problems):,} problem"
                f"{'s' if len(problems) > 1 else ''}: {problems[0].field}: {problems[0].message}",
                fix=problems[0].fix,
                pipeline=declaration.name,
                problems=problems,
            )
        if verdict.broken:
            raise _in_use(declaration.name, declaration.tenant, verdict.broken)


def _read_only(name: str, tenant: str, installed: Installed) -> str | None:
    """Return where a pipeline that REST may not change is declared; None if it is not one."""
    file = installed.declaration(name)
    if file is not None and file.origin is DeclarationOrigin.CAPTURE:
        return "is generated by a capture" if file.tenant == tenant else "is a name of another tenant"
    if file is not None and file.origin is DeclarationOrigin.FILE:
        return f"is declared in {file.label}" if file.tenant == tenant else "is a name of another tenant"
    if file is None and any(each.name == name for each in installed.catalog.pipelines):
        return "is built into the platform, or declared in code"
    return None


def _expect_seen(before: Revision, matches: Matches) -> None:
    if not matches(before.revision):
        raise _conflict(
            before.pipeline,
            "changed",
            f"is at revision {before.revision}, which `If-Match` does not name",
            "read it again, and send the change with its `ETag`",
            before.revision,
        )


def _in_use(name: str, tenant: str, others: tuple[PipelineFile, ...]) -> DeclarationConflict:
    first = next((each for each in others if each.tenant == tenant), None)
    if first is None:
        return _conflict(name, "in-use", "is needed by another tenant", "keep its tables and columns")
    problem = first.problems[0]
    return _conflict(
        name, "in-use", f"is needed by {first.name} ({problem.field}: {problem.message})", "change that first"
    )


def _conflict(name: str, kind: str, why: str, fix: str, revision: int | None = None) -> DeclarationConflict:
    return DeclarationConflict(f"{name} {why}", fix=fix, pipeline=name, kind=kind, revision=revision)
