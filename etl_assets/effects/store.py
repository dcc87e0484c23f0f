"""The store of effects: reserve, do, complete.

A sink outside of the platform performs its effects through it.

```
            reserve                      complete
 (nothing) ─────────► reserved, token 1 ─────────► completed, result      until the row is deleted
                        │  reserve by another, once the owner is fenced, ended, or silent for too long
                        ▼
                      reserved, token 2 ─────────► completed, result      token 1 cannot complete any more
```

An effect counts as done when its completion is acknowledged. A key has at most one completion: each
completion is a commit on the version it was decided on, and needs the reservation with its own token, under
the epoch that leads.

The work between the two can be done twice: by an owner that dies before it completes, or by one that
continues after another process has replaced it. `Reserved.attempt` says that another owner may have done it.
So the effect itself should be one that can be looked up or repeated under its key: an upsert, a put of the
same object, a request with an idempotency key.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from etl_assets.effects.effect import Effect, Owner, reserved
from etl_assets.effects.process import is_gone, this_process
from etl_assets.errors import EffectInProgress, EffectKeyReused, EffectTakenOver

EXPIRES_SECONDS = 60.0
_POLL_SECONDS = 0.5


class Effects(Protocol):
    """The effects at one version."""

    @property
    def epoch(self) -> str:
        """The fence epoch of the next commit; empty with one domain."""
        ...

    def get(self, sink: str, key: str) -> Effect | None:
        """Return one effect; None if it does not exist."""
        ...


Change = Callable[[Effects], Sequence[Effect]]
T = TypeVar("T")


class EffectsLog(Protocol):
    """Storage of effects: `EffectsTable`, and in tests `testing.MemoryEffects`."""

    def update(self, change: Change, *, take_lead: bool) -> None:
        """Pass the current effects to `change`, and commit what it returns as the next version.

        Nothing is committed if `change` returns nothing.

        If another commit came in between, `change` is called again. Its errors are raised here; nothing is
        written then.

        Raises:
            CommitConflict: other processes kept committing in between; nothing was written.
            Fenced: another domain leads, and `take_lead` is not set.
            QuorumUnavailable: the commit was not acknowledged. It may still be: call again to find out.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """An effect that the caller has to do now.

    Beyond attempt 1 another owner may have done it without reporting it. `held` is the content of a claimed
    effect.
    """

    key: str
    attempt: int
    held: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """An effect that was done before, with its result."""

    key: str
    result: Any


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def fingerprint(content: bytes) -> str:
    """Return a fingerprint of an effect's content."""
    return hashlib.sha256(content).hexdigest()


class EffectStore:
    """The effects of one sink, for one worker at a time: two threads need a store each."""

    def __init__(
        self,
        log: EffectsLog,
        *,
        sink: str,
        domain: str,
        expires_seconds: float = EXPIRES_SECONDS,
        process: str | None = None,
        worker: str | None = None,
        process_is_gone: Callable[[str], bool] = is_gone,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        """Create the store of a sink.

        Args:
            log: Storage of the effects.
            sink: Name of the sink.
            domain: The failure domain that this process runs in.
            expires_seconds: How long a reservation is left to an owner that may be alive. Others replace the
                owner once they have seen its reservation unchanged for this long, on their own clock: clocks
                need not agree.
            process: Identity of the owner's process, if not this process.
            worker: Name of the worker in this process, if there is one at a time: a later store with the name
                goes on with what this one reserved, without waiting.
            process_is_gone: Returns whether a process has certainly ended.
            monotonic: Clock for waiting.
            sleep: Waits.
            clock: Returns the time to record, for people.
        """
        self._log = log
        self._sink = sink
        self._domain = domain
        self._expires_seconds = expires_seconds
        self._process = f"{process or this_process()}/{worker or uuid.uuid4().hex[:8]}"
        self._process_is_gone = process_is_gone
        self._monotonic = monotonic
        self._sleep = sleep
        self._clock = clock
        self._mine: dict[str, str] = {}
        self._seen: dict[str, tuple[tuple[str, int], float]] = {}

    def reserve(
        self, key: str, fingerprint: str, *, wait_seconds: float | None = None
    ) -> Reserved | Completed:
        """Reserve one effect; see `reserve_all`."""
        return self.reserve_all({key: fingerprint}, wait_seconds=wait_seconds)[key]

    def reserve_all(
        self, wanted: Mapping[str, str], *, wait_seconds: float | None = None
    ) -> dict[str, Reserved | Completed]:
        """Reserve effects, all of them or none, in one commit.

        Args:
            wanted: Fingerprints of the effects' contents, by key.
            wait_seconds: How long to wait for owners that may be alive; by default until their reservations
                have expired.

        Returns:
            For each key, a reservation to do the effect now, or the result of the effect.

        Raises:
            EffectKeyReused: a key belongs to another content.
            EffectInProgress: another owner holds one of them, and was not silent for long enough.
            CommitConflict, Fenced, QuorumUnavailable: nothing was promised. Call again.
        """
        return self._patiently(lambda: self._reserve(wanted), wait_seconds)

    def complete(self, key: str, result: Any) -> Any:
        """Record the result of one effect; see `complete_all`."""
        return self.complete_all({key: result})[key]

    def complete_all(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Record the results of effects that this store reserved, in one commit.

        A second call changes nothing.

        Args:
            results: Results by key, as values that JSON has.

        Returns:
            The recorded result of each effect: the one that was given first.

        Raises:
            EffectTakenOver: another owner holds one of them by now, or the leader has changed since it was
                reserved; none was completed. Reserve again.
            Fenced: another domain leads the table. Reserve again, in that domain.
            CommitConflict, QuorumUnavailable: the commit was not acknowledged. Complete again.
        """
        kept: dict[str, Any] = {}

        def change(effects: Effects) -> list[Effect]:
            rows = []
            for key, result in results.items():
                effect = self._expect_mine(effects.get(self._sink, key), key, effects.epoch)
                if not effect.is_completed:
                    effect = effect.completed(_json(result), self._clock())
                    rows.append(effect)
                kept[key] = json.loads(effect.result or "null")
            return rows

        self._log.update(change, take_lead=False)
        return kept

    def claim(
        self, key: str, choose: Callable[[Any | None], Any], *, wait_seconds: float | None = None
    ) -> Reserved | Completed:
        """Reserve an effect whose content is chosen by what is there: continue it, or begin another one.

        A key of such effects stands for one effect after the other. The one before is forgotten when another
        begins, so that the table has one row for each key.

        Args:
            key: The key.
            choose: Gets the content of the effect that is there, None if there is none, and returns it to
                continue that effect, or the content of another one. Called again after a conflict.
            wait_seconds: How long to wait for an owner that may be alive; by default until its reservation
                has expired.

        Returns:
            The reservation with the content in `held`; or, if the effect that is continued was completed, its
            result.

        Raises:
            EffectInProgress: another owner holds it, and was not silent for long enough.
            CommitConflict, Fenced, QuorumUnavailable: nothing was promised. Call again.
        """
        answers: list[Reserved | Completed] = []
        token = uuid.uuid4().hex

        def change(effects: Effects) -> list[Effect]:
            answers.clear()
            before = effects.get(self._sink, key)
            if before is not None and not self._is_free(before, effects.epoch):
                raise self._in_progress(before)
            held = None if before is None else json.loads(before.result or "null")
            content = choose(held)
            if before is not None and content is held:
                if before.is_completed:
                    answers.append(Completed(key=key, result=held))
                    return []
                if before.token == token:  # its commit was made, and its answer was lost
                    answers.append(Reserved(key=key, attempt=before.attempt, held=held))
                    return []
            text = _json(content)
            mine = reserved(
                before if content is held else None,
                sink=self._sink,
                key=key,
                fingerprint=fingerprint(text.encode()),
                owner=Owner(domain=self._domain, epoch=effects.epoch, process=self._process),
                token=token,
                at=self._clock(),
            )
            answers.append(Reserved(key=key, attempt=mine.attempt, held=content))
            return [mine.noted(text)]

        self._patiently(lambda: self._log.update(change, take_lead=True), wait_seconds)
        (answer,) = answers
        if isinstance(answer, Reserved):
            self._mine[key] = token
        return answer

    def note(self, key: str, content: Any) -> None:
        """Replace the content of an effect that this store claimed, and that is not completed.

        Raises:
            EffectTakenOver, Fenced, CommitConflict, QuorumUnavailable: as for `complete_all`.
        """

        def change(effects: Effects) -> list[Effect]:
            effect = self._expect_mine(effects.get(self._sink, key), key, effects.epoch)
            return [] if effect.is_completed else [effect.noted(_json(content))]

        self._log.update(change, take_lead=False)

    def _patiently(self, ask: Callable[[], T], wait_seconds: float | None) -> T:
        patience = self._expires_seconds + 2 * _POLL_SECONDS if wait_seconds is None else wait_seconds
        deadline = self._monotonic() + patience
        while True:
            try:
                return ask()
            except EffectInProgress:
                if self._monotonic() >= deadline:
                    raise
            self._sleep(_POLL_SECONDS)

    def _expect_mine(self, effect: Effect | None, key: str, epoch: str) -> Effect:
        if effect is not None and effect.token == self._mine.get(key):
            if effect.is_completed or not effect.is_of_another_epoch(epoch):
                return effect
            why = f"the table is led under epoch {epoch} now, not {effect.owner_epoch}"
        elif effect is None or key not in self._mine:
            why = "this store has not reserved it"
        else:
            why = f"{effect.owner_process} in {effect.owner_domain} has taken it over"
        raise EffectTakenOver(
            f"the effect {key!r} of {self._sink} cannot be completed: {why}",
            fix="reserve it again: it may have been done, and then the answer says what came of it",
            sink=self._sink,
            key=key,
        )

    def _reserve(self, wanted: Mapping[str, str]) -> dict[str, Reserved | Completed]:
        answers: dict[str, Reserved | Completed] = {}
        tokens: dict[str, str] = {}

        def change(effects: Effects) -> list[Effect]:
            answers.clear()
            rows = []
            # Check all of them, so that the silence of several owners is timed at once.
            taken = [each for key in wanted if (each := effects.get(self._sink, key)) is not None]
            taken = [each for each in taken if not self._is_free(each, effects.epoch)]
            owner = Owner(domain=self._domain, epoch=effects.epoch, process=self._process)
            for key, content in wanted.items():
                before = effects.get(self._sink, key)
                self._expect_same(before, key, content)
                if before is not None and before.is_completed:
                    answers[key] = Completed(key=key, result=json.loads(before.result or "null"))
                    continue
                if taken:
                    continue
                token = tokens.setdefault(key, uuid.uuid4().hex)
                if before is None or before.token != token:
                    before = reserved(
                        before,
                        sink=self._sink,
                        key=key,
                        fingerprint=content,
                        owner=owner,
                        token=token,
                        at=self._clock(),
                    )
                    rows.append(before)
                answers[key] = Reserved(key=key, attempt=before.attempt)
            if taken:
                raise self._in_progress(taken[0])
            return rows

        self._log.update(change, take_lead=True)
        self._mine |= tokens
        return answers

    def _expect_same(self, effect: Effect | None, key: str, content: str) -> None:
        if effect is not None and effect.fingerprint != content:
            raise EffectKeyReused(
                f"the key {key!r} of {self._sink} stands for another content ({effect.fingerprint[:12]}, not"
                f" {content[:12]})",
                fix="name effects by keys that no other content can have, such as an event id or a batch"
                " with its version",
                sink=self._sink,
                key=key,
            )

    def _is_free(self, effect: Effect, epoch: str) -> bool:
        """Return whether the effect's owner, if it has one, does not prevent a reservation."""
        expired = self._has_expired(effect)
        return (
            effect.is_completed
            or effect.is_of_another_epoch(epoch)
            or effect.owner_process == self._process
            or self._process_is_gone(effect.owner_process)
            or expired
        )

    def _in_progress(self, effect: Effect) -> EffectInProgress:
        return EffectInProgress(
            f"the effect {effect.key!r} of {self._sink} is being done by {effect.owner_process} in"
            f" {effect.owner_domain}",
            fix=f"wait: if it stays as it is for {self._expires_seconds:g} s it is taken over",
            sink=self._sink,
            key=effect.key,
        )

    def _has_expired(self, effect: Effect) -> bool:
        if effect.is_completed:
            self._seen.pop(effect.key, None)
            return False
        now = self._monotonic()
        seen, since = self._seen.setdefault(effect.key, (effect.change, now))
        if seen != effect.change:
            self._seen[effect.key] = (effect.change, now)
            return False
        return now - since >= self._expires_seconds
