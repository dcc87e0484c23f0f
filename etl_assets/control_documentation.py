"""Generate docs/control-plane.md from the states, the actions and the table of transitions.

Belongs here: the page. Does not belong here: the meaning of a state or a transition, which stands in the code.

`python -m etl_assets.control_documentation > docs/control-plane.md` writes the page; a test fails when it is
stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from etl_assets.control.failures import MAX_ATTEMPTS, TIMED_RETRY_SECONDS
from etl_assets.control.states import Action, ControlState, Party
from etl_assets.control.transitions import TRANSITIONS, When
from etl_assets.markdown_table import markdown_table

_INTRODUCTION = """\
# Control plane

<!-- Written by `python -m etl_assets.control_documentation > docs/control-plane.md`. -->

Each pipeline has one state of run control. Commands and programs change it; every change is one transaction with a row of the history that says
who, when, why, from and to.

```sh
etl-assets pipelines run film_ratings --reason "late delivery"
etl-assets pipelines pause film_ratings --reason "database upgrade"
etl-assets pipelines runs film_ratings
```

From Python:

```python
from etl_assets.control.run_controls import RunControls
from etl_assets.control.store import open_store
from etl_assets.settings import load_settings

controls = RunControls(open_store(load_settings()))
run = controls.request_run("film_ratings", actor="alice", reason="late delivery")
controls.pause("film_ratings", actor="alice", reason="database upgrade")
controls.state_of("film_ratings").state, controls.run(run.id).status
controls.history("film_ratings")
```

The store is `control.db`, SQLite in the home folder, or the PostgreSQL database of the connection that `control.connection` of the platform
file names ([settings](settings.md#control)). Its tables are made and brought up to date at the first use.

Data does not wait for the store. While it does not answer, worker, sensors and commands use the states that they knew last, of which
`control-states.json` in the home folder is a copy, and `etl-assets doctor` says so. Runs stop when their leases end, and no request, pause or
cancellation is obeyed until it answers again.
"""
_RUNS = f"""\
## Runs

A run carries a pipeline until everything that its source had when it began is read, its tables are current and its sinks have it. Between
batches its runner looks at the state, so a pause or a cancellation takes effect within one batch; a batch that has begun is committed.
A pipeline without a run is `PAUSED` at once; a worker that follows it sees that within a second, and completes the batch that is under way.
The worker (`etl-assets worker`) is the runner. `etl-assets run` and the sensors carry no runs: they follow pipelines that are `IDLE` or
`RUN_REQUESTED`, and leave the others alone. Runs that someone starts in Dagster's UI are that person's, and obey no state.

- **Requests are remembered.** A run that is asked for while another one is under way, or while the pipeline is paused, begins afterwards.
  Several such requests are one run. A request while a run waits that has not begun is that run. `cancel` gives remembered requests up.
- **Attempts.** An error that may pass is tried again, {MAX_ATTEMPTS} times in all, after a backoff of 1 s that doubles, with jitter. Then, or at
  once after any other error, the run has failed.
- **Failed runs** have an error, a solution and a retry policy: `timed` goes on by itself after {TIMED_RETRY_SECONDS:.0f} s, `manual` waits for
  `retry`, `none` fails again unless what the error names is changed. `retry` and `run` leave every one of them.
- **A runner that is gone** is known by its lease: it sends heartbeats, and a runner that has seen none for `control.lease_seconds` lets the run wait
  for another runner, which goes on from the last commit. The attempt counts. Any worker of the same control store takes it over; without one,
  `etl-assets doctor` names the run. Time is measured by the observer's monotonic clock, so a
  clock that is set changes nothing ([decision 0065](decisions/0065-run-control.md)).
- **Fencing tokens** rise with each claim of a pipeline, and no two claims have the same one. A runner that lost its lease gets `LeaseLost` from
  every call, and begins no step once its last heartbeat is older than its lease. A step that has begun before is rejected at its commit and at
  its sink as soon as the next runner has begun, however late it wakes up ([mutual exclusion](mutual-exclusion.md#the-lease-of-a-run)).
"""


FAULTS: tuple[tuple[str, str, str], ...] = (
    (
        "a second runner takes over a live run",
        "a claim is one compare-and-set, and a superseded runner is rejected at each commit",
        "kill/test_superseded_runner.py::test_a_runner_that_wakes_up_is_rejected",
    ),
    (
        "a kill, a pause or a clock that jumps loses a request, or lets two runners commit in turns",
        "each change is one transaction with its history, and no wall clock decides about leases or what to read",
        "control/test_fleet.py::"
        "test_two_control_planes_and_three_workers_lose_no_request_and_carry_no_run_twice",
    ),
    (
        "`FAILED` is a dead end",
        "`retry`, `run`, `cancel` and `pause` leave it",
        "control/test_transitions.py::test_no_state_is_a_dead_end_for_clients",
    ),
    (
        "a change over REST bypasses allow-list or validation",
        "each change is validated as a whole declaration",
        "serve/test_definitions.py::test_targets_are_those_that_the_platform_file_lists_at_the_definition",
    ),
    (
        "a change over REST is answered by 500",
        "what cannot be used is refused with its field",
        "serve/test_definitions.py::test_no_declaration_makes_the_server_fail",
    ),
    (
        "a pipeline that is switched off waits for ever",
        "a run that is asked for meanwhile is remembered, and `resume` begins it",
        "control/test_store.py::test_a_request_during_a_run_follows_it_and_a_pause_in_between_loses_neither",
    ),
    (
        "bigint or text keys fail at the second batch",
        "keys are bound with their own type",
        "sources/test_sql_source.py::test_keys_of_any_type_are_read_page_by_page_without_loss_or_repeat",
    ),
    (
        "a full load begins at 0 after it was interrupted",
        "its position is committed with its rows",
        "sources/test_sql_full_load.py::test_after_a_kill_and_changes_the_load_goes_on_and_ends_with_the_rows_of_the_query",
    ),
    (
        "a pause is lost by a request, or a request by a pause",
        "they are two columns of one row",
        "control/test_store.py::test_a_request_during_a_run_follows_it_and_a_pause_in_between_loses_neither",
    ),
    (
        "a number that is too large breaks a mart for good",
        "the row is a dead letter of its sink, and the others arrive",
        "sinks/test_postgres_sink.py::test_a_row_that_the_server_or_a_users_constraint_refuses_is_rejected_and_the_rest_arrives",
    ),
    (
        "`:x` in a literal breaks a query",
        "a query is sent as it is, and parameters are the platform's own",
        "sources/test_sql_source.py::test_values_are_exact",
    ),
    (
        "transforms have two contracts",
        "each takes rows and gives rows, and is checked by one function when it is declared and when it runs",
        "spark/test_declared_transforms.py::test_what_does_not_fit_is_named_with_the_transform_and_a_fix",
    ),
    (
        "rows are skipped or come twice because pages are counted by `OFFSET`",
        "a page begins after the last key",
        "sources/test_sql_source.py::test_equal_keys_over_many_pages_zero_rows_one_row_and_exactly_a_page",
    ),
)
"""Fault, why it cannot happen, and the test that shows it."""


def render() -> str:
    """Return the whole page."""
    return "\n".join(_lines())


def mermaid() -> Iterator[str]:
    """Yield the lines of the state diagram: an arrow for each two states, with all actions that lead there."""
    arrows: dict[tuple[ControlState, ControlState], list[str]] = {}
    for row in TRANSITIONS:
        if row.start is not row.end:
            arrows.setdefault((row.start, row.end), []).append(row.action.value)
    yield "stateDiagram-v2"
    yield f"    [*] --> {ControlState.IDLE}"
    for (start, end), actions in arrows.items():
        yield f"    {start} --> {end}: {', '.join(dict.fromkeys(actions))}"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## States\n"
    yield from markdown_table(
        ["state", "meaning", "set by", "durable"],
        (
            [f"`{state}`", state.meaning, ", ".join(state.set_by), "yes" if state.is_durable else "no"]
            for state in ControlState
        ),
    )
    yield "```mermaid"
    yield from mermaid()
    yield "```\n"
    yield "## Actions\n"
    yield from markdown_table(
        ["action", "who may", "what it does"],
        ([f"`{action}`", action.party.value, action.meaning] for action in Action),
    )
    yield (
        f"`{Party.RECOVERY}` is any runner that looks for runs to claim. What a state does not allow is refused with"
        " `TransitionRefused`, which names what it allows.\n"
    )
    yield "## Transitions\n"
    yield from markdown_table(
        ["from", "action", "to", "who", "if", "meaning"],
        (
            [
                f"`{row.start}`",
                f"`{row.action}`",
                f"`{row.end}`",
                row.action.party.value,
                "" if row.when is When.ALWAYS else row.when.value,
                row.meaning,
            ]
            for row in TRANSITIONS
        ),
    )
    yield "Of rows with the same state and action, the first whose condition holds applies.\n"
    yield _RUNS
    yield "## Faults that cannot happen\n"
    yield from markdown_table(
        ["fault", "why not", "shown by"],
        ([fault, why, f"`etl_assets_tests/{test}`"] for fault, why, test in FAULTS),
    )


if __name__ == "__main__":
    sys.stdout.write(render())
