"""What must hold of the history, the runs and the tables, whatever was killed, stopped or set back.

Each function returns what is wrong, as sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from etl_assets.control.records import AuditEntry, PipelineRun
from etl_assets.control.states import Action, ControlState, RunStatus
from etl_assets.control.transitions import TRANSITIONS
from etl_assets_tests.control.rest_client import Accepted

_ALLOWED = {(each.start, each.action, each.end) for each in TRANSITIONS}


def broken_chain(entries: Sequence[AuditEntry], last: ControlState) -> list[str]:
    """Each change begins where the one before ended, is in the table of transitions; the last one stands."""
    wrong, state, token = [], ControlState.IDLE, 0
    for entry in entries:
        if entry.start is not state:
            wrong.append(f"{entry.id} begins at {entry.start}, and the one before ended at {state}")
        if (entry.start, entry.action, entry.end) not in _ALLOWED:
            wrong.append(
                f"{entry.id}: no transition leads from {entry.start} by {entry.action} to {entry.end}"
            )
        if entry.action is Action.CLAIM and entry.token != token + 1:
            wrong.append(f"{entry.id}: claimed with token {entry.token} after {token}")
        state, token = entry.end, entry.token
    return wrong + ([f"the state is {last}, and the history ends at {state}"] if state is not last else [])


def lost_requests(
    entries: Sequence[AuditEntry], accepted: Iterable[Accepted], runs: dict[str, PipelineRun]
) -> list[str]:
    """Each accepted request was in effect when it was answered, and each run has come to the end it must.

    Args:
        entries: The history of a pipeline, the oldest first.
        accepted: The accepted requests for it.
        runs: Its runs by id.
    """
    wrong = []
    for each in accepted:
        if each.run_id is not None:
            asked = [
                entry.id for entry in entries if entry.action is Action.RUN and entry.run_id == each.run_id
            ]
            if not asked or min(asked) > each.until:
                wrong.append(f"the run {each.run_id} was answered before it was asked for")
            elif (problem := _wrong_end(entries, runs.get(each.run_id), min(asked))) is not None:
                wrong.append(f"the run {each.run_id} {problem}")
            continue
        before = [entry.end for entry in entries if entry.id <= each.since][-1:] or [ControlState.IDLE]
        during = [entry.end for entry in entries if each.since < entry.id <= each.until]
        if each.state not in (*before, *during):
            wrong.append(f"{each.reason} was answered with {each.state}, which it was not in between")
        if not any(entry.reason == each.reason for entry in entries) and not any(
            (state, each.action, state) in _ALLOWED and state is each.state for state in (*before, *during)
        ):
            wrong.append(f"{each.reason} was answered with {each.state}, and changed nothing")
    return wrong


def _wrong_end(entries: Sequence[AuditEntry], run: PipelineRun | None, asked: int) -> str | None:
    if run is None:
        return "does not exist"
    later = [entry for entry in entries if entry.id > asked]
    if run.status is RunStatus.SUCCEEDED:
        found = [entry for entry in later if entry.action is Action.FINISH and entry.run_id == run.id]
        return None if len(found) == 1 else f"succeeded, with {len(found)} ends"
    if run.status is RunStatus.CANCELED and any(entry.action is Action.CANCEL for entry in later):
        return None
    if run.status is RunStatus.FAILED and any(
        entry.action is Action.RUN and entry.start is ControlState.FAILED for entry in later
    ):
        return None  # a request for another run has ended it
    return f"is {run.status}"


def overtaken_commits(commits: Sequence[tuple[int, int]], entries: Sequence[AuditEntry]) -> list[str]:
    """No runner has committed after the next one: tokens rise along a table's log, and each was claimed.

    Args:
        commits: Version and token of each commit of a run, in order.
        entries: The history of the pipeline.
    """
    tokens = [token for _, token in commits]
    claimed = {entry.token for entry in entries if entry.action is Action.CLAIM}
    wrong = [] if tokens == sorted(tokens) else [f"an earlier runner committed after a later one: {commits}"]
    return wrong + [f"a commit has token {token}, which nobody claimed" for token in set(tokens) - claimed]


def wrong_rows(place: str, found: Iterable[int], landed: set[int]) -> list[str]:
    """Each row that has landed is there once, and no other."""
    counted = Counter(found)
    twice = sum(1 for times in counted.values() if times > 1)
    missing, foreign = len(landed - counted.keys()), len(counted.keys() - landed)
    if not (twice or missing or foreign):
        return []
    return [f"{place}: {missing} rows are missing, {twice} are there twice, {foreign} never landed"]


def wrong_progress(
    entries: Sequence[AuditEntry],
    runs: Iterable[PipelineRun],
    rows_by_version: Counter[int],
    commits: Sequence[tuple[int, int]],
) -> list[str]:
    """A run counts no batch that it did not commit; one that lost no runner counts all, and their rows.

    Args:
        entries: The history of a pipeline.
        runs: Its runs.
        rows_by_version: Rows of its source table by the version that wrote them.
        commits: Version and token of each commit of a run in that table.
    """
    wrong = []
    for run in runs:
        of_run = [entry for entry in entries if entry.run_id == run.id]
        tokens = {entry.token for entry in of_run if entry.action is Action.CLAIM}
        versions = [version for version, token in commits if token in tokens and rows_by_version[version]]
        rows = sum(rows_by_version[version] for version in versions)
        is_whole = not any(entry.action in (Action.LOSE, Action.FAIL, Action.REPEAT) for entry in of_run)
        if run.batches > len(versions):
            wrong.append(f"{run.id} counts {run.batches} batches and has committed {len(versions)}")
        if is_whole and (run.batches, run.rows) != (len(versions), rows):
            counted = f"{run.batches} batches, {run.rows} rows"
            wrong.append(f"{run.id} counts {counted}; the table has {len(versions)}, {rows}")
    return wrong
