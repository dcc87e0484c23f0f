"""Submit replays of dead letters and report their results. No JVM, no Dagster.

This is the operator's side of a replay. A submission is a commit to the table of replays (`sources.replays`);
the caller runs the steps that read it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import DeadLetterState, Outcome
from etl_assets.errors import InputError
from etl_assets.observability.dead_letters import DeadLetter, read_dead_letters
from etl_assets.observability.rows import find_rows
from etl_assets.observability.sink_replays import request_of, results_of
from etl_assets.sources import replays
from etl_assets.sources.landing import REPLAYS
from etl_assets.sources.replays import Replay, source_position
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence

    from etl_assets.pipelines.catalog import Catalog
    from etl_assets.pipelines.stage import Stage
    from etl_assets.placement.domains import FailureDomain


class ReplayResult(StrEnum):
    """Result of a replay.

    REPLAYED: the record was accepted; the dead letter is closed. Of a sink: the target has the row of now, or
        no row if there is none any more.
    REFUSED: a stage or a target rejected it again; the dead letter stays open.
    DUPLICATE: the same event had been accepted before; the dead letter is closed.
    WAITING: no stage has processed it yet; the next run of its day does. Of a sink: the next delivery.
    """

    REPLAYED = "replayed"
    REFUSED = "refused"
    DUPLICATE = "duplicate"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedIn:
    """A submitted replay.

    Attributes:
        letter: The dead letter.
        attempt: Number of the attempt.
        is_new: False if a stage had already processed that attempt and only dead_letters lacked it.
        target: The stage that validates it: the one that rejected the record, or the one that reads its
            source.
    """

    letter: DeadLetter
    attempt: int
    is_new: bool
    target: Stage

    @property
    def stage(self) -> str:
        """Name of the stage that the replay was submitted to."""
        return self.target.name_in_rejects

    @property
    def day(self) -> dt.date:
        """Day to run."""
        return self.letter.partition_date


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Result of one replay.

    `stage`, `reason` and `error` are those of the last rejection, if there was one. `detail` is what a
    delivery to a sink made of the row.
    """

    dead_letter_id: str
    attempt: int
    result: ReplayResult
    stage: str
    event_id: str | None = None
    reason: str | None = None
    error: str | None = None
    detail: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return dataclasses.asdict(self)


def check_open(letter: DeadLetter) -> None:
    """Reject a dead letter that is closed.

    Raises:
        InputError: the dead letter is replayed or discarded.
    """
    if not letter.is_open:
        raise InputError(
            f"the dead letter {letter.dead_letter_id[:12]} is {letter.state}, not open",
            fix="only open letters can be replayed or discarded; `etl-assets dead-letters list` shows them",
            dead_letter_id=letter.dead_letter_id,
        )


def target_of(letter: DeadLetter, catalog: Catalog, *, corrected: bool = False) -> Stage:
    """Return the stage that validates a dead letter again, or delivers its row.

    A corrected record of a row that a target rejected goes to the source: the row is made again.

    Raises:
        InputError: no pipeline of the installation has the stage that rejected it, or that takes no replays.
    """
    stage = _stage_of(letter, catalog)
    short = letter.dead_letter_id[:12]
    if stage is None:
        raise InputError(
            f"the dead letter {short} is of the stage {letter.stage}, and no pipeline of this installation"
            " has that",
            fix="bring the file of its pipeline back, or correct it (`etl-assets pipelines validate`), or"
            " discard the letter",
            dead_letter_id=letter.dead_letter_id,
        )
    pipeline = catalog.pipeline_of(stage.name)
    if stage.takes_replays or stage.source is not None or (stage.delivers and not corrected):
        return stage
    for each in () if pipeline is None else pipeline.stages:
        if each.source is not None:
            return each
    raise InputError(
        f"the dead letter {short} is of the stage {letter.stage}, which takes no replays",
        fix="run the partition again instead",
        dead_letter_id=letter.dead_letter_id,
    )


def is_of_removed_pipeline(letter: DeadLetter, catalog: Catalog) -> bool:
    """Return whether no pipeline of the installation has the stage that rejected a dead letter."""
    return _stage_of(letter, catalog) is None


def _stage_of(letter: DeadLetter, catalog: Catalog) -> Stage | None:
    return next((each for each in catalog.stages if each.name_in_rejects == letter.stage), None)


def check_letter(letter: DeadLetter, target: Stage, *, corrected: bool) -> None:
    """Reject a dead letter that cannot be replayed.

    Raises:
        InputError: the dead letter is not open, or its record was not kept whole.
    """
    check_open(letter)
    short = letter.dead_letter_id[:12]
    if target.source is not None and letter.is_cut_off and not corrected:
        raise InputError(
            f"the dead letter {short} holds only the beginning of a record that was too large",
            fix="put the whole record, made smaller, into a file and give it by --record FILE; it came from"
            f" {letter.source_position}",
            dead_letter_id=letter.dead_letter_id,
        )


def hand_in(
    domain: FailureDomain,
    letters: Sequence[DeadLetter],
    correction: bytes | None,
    *,
    left_out: Callable[[DeadLetter, InputError], object] | None = None,
) -> list[HandedIn]:
    """Submit replays of dead letters, each as its next attempt, all in one commit.

    A second submission changes nothing. An attempt that a stage has already processed, in a run that ended
    before dead_letters, is not submitted again: the next run brings the dead letter up to date.

    Args:
        domain: Failure domain that commits the replays.
        letters: The dead letters, with their records.
        correction: Replacement of one dead letter's record: the whole line at ingest, the payload at
            normalize.
        left_out: Takes each dead letter that cannot be submitted, with the reason; the others are submitted.

    Raises:
        InputError: a dead letter or the correction cannot be submitted, without `left_out`; none was.
        MirrorError: the commit was not acknowledged. Submit again.
    """
    handed_in: list[HandedIn] = []
    new: list[Replay] = []
    for letter in letters:
        try:
            target = target_of(letter, domain.catalog, corrected=correction is not None)
            check_letter(letter, target, corrected=correction is not None)
            attempt = letter.attempts + 1
            is_new = not _was_judged(domain, letter, attempt, target)
            each = HandedIn(letter=letter, attempt=attempt, is_new=is_new, target=target)
            new += [_replay(each, correction, domain.catalog)] if is_new else []
            handed_in.append(each)
        except InputError as error:
            if left_out is None:
                raise
            left_out(letter, error)
    replays.submit_replays(domain, new)
    return handed_in


def _replay(handed_in: HandedIn, correction: bytes | None, catalog: Catalog) -> Replay:
    letter, attempt = handed_in.letter, handed_in.attempt
    day, letter_id = letter.partition_date, letter.dead_letter_id
    if handed_in.target.delivers:
        return request_of(letter, attempt, handed_in.target, catalog)
    if handed_in.target.source is not None:
        record = letter.record_bytes() if correction is None else correction
        _check_not_empty(record, letter)
        return replays.record_again(day, letter_id, attempt, record, stage=handed_in.stage)
    if correction is not None:
        _check_payload(correction)
    return replays.event_again(
        day, letter_id, attempt, letter.event_id or "", correction, stage=handed_in.stage
    )


def _check_not_empty(record: bytes, letter: DeadLetter) -> None:
    if not record.strip():
        raise InputError(
            f"there is no record to hand in for the dead letter {letter.dead_letter_id[:12]}",
            fix="put the whole event, as one line of JSON, into a file and give it by --record FILE",
            dead_letter_id=letter.dead_letter_id,
        )


def _check_payload(correction: bytes) -> None:
    """Reject a whole event where its payload is expected: it would pass for a payload with odd fields."""
    try:
        value = json.loads(correction)
    except ValueError:
        return  # The stage reports what is wrong with the record.
    if isinstance(value, dict) and {"event_id", "payload"} <= value.keys():
        raise InputError(
            "the corrected record is a whole event, and normalize takes the payload alone",
            fix="give the object under `payload`; the envelope was accepted and stays as it is",
        )


def outcomes(domain: FailureDomain, handed_in: list[HandedIn]) -> list[Replayed]:
    """Read the results of submitted replays from the tables."""
    ids = [each.letter.dead_letter_id for each in handed_in]
    now = {letter.dead_letter_id: letter for letter in read_dead_letters(domain, dead_letter_id=ids)}
    of_sinks: dict[str, list[HandedIn]] = {}
    for each in handed_in:
        if each.target.delivers:
            of_sinks.setdefault(each.target.name, []).append(each)
    delivered: dict[str, dict[str, Any]] = {}
    for some in of_sinks.values():
        delivered.update(results_of(domain, some[0].target, [(each.letter, each.attempt) for each in some]))
    return [
        _at_sink(each, now[each.letter.dead_letter_id], delivered.get(each.letter.dead_letter_id))
        if each.target.delivers
        else _outcome(domain, each, now[each.letter.dead_letter_id])
        for each in handed_in
    ]


def _at_sink(handed_in: HandedIn, now: DeadLetter, found: dict[str, Any] | None) -> Replayed:
    """Return what a delivery made of a replay, by its row of the table of rejects."""
    common: dict[str, Any] = {
        "dead_letter_id": now.dead_letter_id,
        "attempt": handed_in.attempt,
        "stage": handed_in.stage,
    }
    if found is None:
        return Replayed(**common, result=ReplayResult.WAITING, reason=now.reason, error=now.error)
    if found["outcome"] == Outcome.REPLAYED:
        return Replayed(**common, result=ReplayResult.REPLAYED, detail=found["error"])
    return Replayed(**common, result=ReplayResult.REFUSED, reason=found["reason"], error=found["error"])


def _outcome(domain: FailureDomain, handed_in: HandedIn, now: DeadLetter) -> Replayed:
    common: dict[str, Any] = {"dead_letter_id": now.dead_letter_id, "attempt": handed_in.attempt}
    refusal: dict[str, Any] = {
        "stage": now.stage,
        "event_id": now.event_id,
        "reason": now.reason,
        "error": now.error,
    }
    duplicate = _duplicate(domain, handed_in)
    if now.state == DeadLetterState.REPLAYED and duplicate is None:
        found = _accepted(domain, now, handed_in.attempt, handed_in.target)
        event_id = found[0] if found else now.event_id
        return Replayed(**common, result=ReplayResult.REPLAYED, stage=handed_in.stage, event_id=event_id)
    if duplicate is not None:
        return Replayed(
            **common,
            result=ReplayResult.DUPLICATE,
            stage=handed_in.stage,
            event_id=duplicate["event_id"],
            error=f"the same event was accepted before, under offset {duplicate['original_offset']}",
        )
    refused = now.attempts >= handed_in.attempt
    return Replayed(**common, result=ReplayResult.REFUSED if refused else ReplayResult.WAITING, **refusal)


def _duplicate(domain: FailureDomain, handed_in: HandedIn) -> dict[str, Any] | None:
    """Return the exception of an attempt at ingest that was a duplicate."""
    if handed_in.target.source is None:
        return None
    found = _exceptions(domain, handed_in.letter, handed_in.attempt, handed_in.target)
    return next((row for row in found if row["outcome"] == Outcome.DUPLICATE), None)


def _was_judged(domain: FailureDomain, letter: DeadLetter, attempt: int, target: Stage) -> bool:
    if target.delivers:
        return False  # the same request again is none
    if target.takes_replays:
        where = {"partition_date": [letter.partition_date], "event_id": [letter.event_id]}
        table = platform_table(target.name, domain)
        if any(True for _ in find_rows(table, columns=("event_id",), where=where)):
            return True
    return bool(_accepted(domain, letter, attempt, target) or _exceptions(domain, letter, attempt, target))


def _accepted(domain: FailureDomain, letter: DeadLetter, attempt: int, target: Stage) -> list[str]:
    """Return the id of the record that a source accepted of an attempt, if it did."""
    if not target.keeps_records:
        return []  # its table of rejected rows marks the attempt
    (source, *_) = domain.catalog.sources_of([target.name])
    (id_column, *_) = domain.catalog.table(source).merge_key
    table = platform_table(source, domain)
    rows = find_rows(table, columns=(id_column,), where=_position(letter, attempt))
    return [row[id_column] for row in rows]


def _exceptions(
    domain: FailureDomain, letter: DeadLetter, attempt: int, target: Stage
) -> list[dict[str, Any]]:
    """Return the exceptions that the replay's stage recorded for an attempt."""
    assert target.rejects is not None  # a stage that takes replays may reject them
    table = platform_table(target.rejects.name, domain)
    columns = ("outcome", "event_id", "original_offset")
    return list(find_rows(table, columns=columns, where=_position(letter, attempt)))


def _position(letter: DeadLetter, attempt: int) -> dict[str, list[Any]]:
    """Return the source of an attempt, the one line of its file, as a filter."""
    day = letter.partition_date
    position = source_position(day, letter.dead_letter_id, attempt)
    return {"partition_date": [day], "source": [REPLAYS], "source_position": [position]}
