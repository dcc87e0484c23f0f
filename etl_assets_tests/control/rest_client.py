"""A client of the fleet's control planes: it asks for runs, pauses, resumes, cancels and retries, at random.

It goes to any of the control planes, and repeats a request without an answer until there is one. What it was
answered is what the test holds the store against.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import pyarrow.parquet
from deltalake import DeltaTable

from etl_assets.control.states import Action, ControlState, RunStatus
from etl_assets.errors import NotFound
from etl_assets.sinks.files.reader import read_manifest
from etl_assets_tests.control.fleet import PIPELINES, Fleet

MAX_REQUESTS = 200
_ANSWER_SECONDS = 60.0
_OVER = {RunStatus.SUCCEEDED, RunStatus.CANCELED, RunStatus.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A request that a control plane has accepted.

    Attributes:
        pipeline: Pipeline.
        action: What was asked for.
        reason: Its reason, which no other request has.
        state: The state that was answered; None for `run`.
        run_id: The run that was answered; None for the others.
        since: The newest entry of the history before it was sent.
        until: The newest one after it was answered.
    """

    pipeline: str
    action: Action
    reason: str
    state: ControlState | None
    run_id: str | None
    since: int
    until: int


@dataclass(kw_only=True)
class Client:
    """A client with its own chances.

    Attributes:
        accepted: What was accepted.
        refused: How many requests the states did not allow.
        problems: What it saw that must not be.
    """

    fleet: Fleet
    number: int
    chance: random.Random
    accepted: list[Accepted] = field(default_factory=list)
    refused: int = 0
    problems: list[str] = field(default_factory=list)
    _keys: dict[str, tuple[str, str]] = field(default_factory=dict)

    def work(self, requests: int, is_over: Callable[[], bool]) -> None:
        """Ask for so many runs at least, and until it is over, and do other things in between."""
        try:
            for number in range(MAX_REQUESTS):
                if number >= requests and is_over():
                    return
                self._one(f"{self.number}.{number}")
                time.sleep(self.chance.uniform(0, 0.3))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.problems.append(f"{type(error).__name__}: {error}")

    def _one(self, reason: str) -> None:
        pipeline = self.chance.choice(PIPELINES)
        self.fleet.land(pipeline)
        landed = self.fleet.ids(pipeline)
        run_id = self._run(pipeline, reason)
        what = self.chance.random()
        if what < 0.3:
            self._act(pipeline, Action.PAUSE, f"{reason} pause")
            time.sleep(self.chance.uniform(0, 0.5))
            self._act(pipeline, Action.RESUME, f"{reason} resume")
        elif what < 0.45:
            self._act(pipeline, Action.CANCEL, f"{reason} cancel")
        elif what < 0.55:
            self._act(pipeline, Action.RETRY, f"{reason} retry")
        elif what < 0.9:
            self._see_to_its_end(pipeline, run_id, landed)
        if self._keys and self.chance.random() < 0.3:
            self._repeat_an_old_request()

    def _run(self, pipeline: str, reason: str) -> str:
        key = f"key-{reason}"
        answer = self._send(pipeline, Action.RUN, reason, key)
        assert answer is not None, "a run is never refused"
        self._keys[key] = (pipeline, answer["id"])
        return answer["id"]

    def _repeat_an_old_request(self) -> None:
        key, (pipeline, run_id) = self.chance.choice(list(self._keys.items()))
        again = self._send(pipeline, Action.RUN, "again", key, is_counted=False)
        if again is None or again["id"] != run_id:
            self.problems.append(f"the request {key} got the run {run_id}, and when repeated {again}")

    def _act(self, pipeline: str, action: Action, reason: str) -> None:
        if self._send(pipeline, action, reason) is None:
            self.refused += 1

    def _see_to_its_end(self, pipeline: str, run_id: str, landed: set[int]) -> None:
        """Wait for a run for a moment. One that succeeded has carried what had landed before the request."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            status = self.fleet.controls.run(run_id).status
            if status is RunStatus.SUCCEEDED:
                self.fleet.faults["runs whose rows were seen at their end"] += 1
                for place, found in (
                    ("table", self.in_table(pipeline)),
                    ("target", self.in_target(pipeline)),
                ):
                    if missing := landed - set(found):
                        self.problems.append(f"{run_id} succeeded, {place} lacks {len(missing)} rows")
            if status in _OVER:
                return
            time.sleep(0.1)

    def in_table(self, pipeline: str) -> list[int]:
        return read_column(self.fleet, pipeline, "id")

    def in_target(self, pipeline: str) -> list[int]:
        for _ in range(20):
            try:
                files = read_manifest(str(self.fleet.folder / "out" / pipeline)).files
                return [each for file in files for each in pyarrow.parquet.read_table(file)["id"].to_pylist()]
            except NotFound:
                return []
            except FileNotFoundError:  # replaced by the next delivery in between
                continue
        raise AssertionError("the files of a manifest are missing again and again")

    def _send(
        self, pipeline: str, action: Action, reason: str, key: str = "", *, is_counted: bool = True
    ) -> dict | None:
        """Send a request until it is answered; return the answer, None if the state does not allow it."""
        since, deadline = self._newest_entry(), time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < deadline:
            server = self.chance.choice(self.fleet.servers)
            headers = {"authorization": f"Bearer {server.token}"} | ({"idempotency-key": key} if key else {})
            path = f"http://127.0.0.1:{server.port}/v1/pipelines/{pipeline}/{action.value}"
            try:
                with httpx.Client(trust_env=False, timeout=2) as client:
                    answer = client.post(path, json={"reason": reason}, headers=headers)
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            if answer.status_code == 409:
                return None
            if answer.status_code in (503, 504):
                time.sleep(0.05)
                continue
            assert answer.status_code in (200, 202), answer.text
            content = answer.json()
            if is_counted:
                self.accepted.append(
                    Accepted(
                        pipeline=pipeline,
                        action=action,
                        reason=reason,
                        state=None if key else ControlState(content["state"]),
                        run_id=content["id"] if key else None,
                        since=since,
                        until=self._newest_entry(),
                    )
                )
            return content
        raise AssertionError(f"{action} of {pipeline} got no answer")

    def _newest_entry(self) -> int:
        found = self.fleet.controls.history(limit=1)
        return found[0].id if found else 0


def read_column(fleet: Fleet, table: str, column: str) -> list:
    """Return a column of a table; nothing if the table is not there yet."""
    folders = sorted((fleet.folder / "data" / "tables" / table).glob("g*"))
    if not folders or not any((folders[-1] / "_delta_log").glob("0*.json")):
        return []
    found = DeltaTable(str(folders[-1])).to_pyarrow_dataset().to_table(columns=[column])
    return found[column].to_pylist()
