"""The webhook sink against a receiver in a process of its own, which honours `Idempotency-Key` and counts."""

from __future__ import annotations

import base64
import hmac
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.errors import SettingsError, SinkRefused, SinkUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.settings.connections import WebhookConnection
from etl_assets.sinks.sink import Rejection
from etl_assets.sinks.webhook.client import CallPatience, Receiver, seconds_of
from etl_assets.sinks.webhook.progress import CallProgress
from etl_assets.sinks.webhook.signature import signature_headers, signing_key
from etl_assets.sinks.webhook.sink import WebhookSink, WebhookTarget
from etl_assets_tests.reference.fault_proxy import Fault, FaultProxy
from etl_assets_tests.reference.webhook_receiver import ReceiverProcess, receiver
from etl_assets_tests.sinks.contract import CONTRACT, SinkContract, at, delivery
from etl_assets_tests.sinks.webhook_lab import PIPELINE, TOKEN, WebhookLab

QUICK = CallPatience(attempts=3, first_delay_seconds=0.01, max_delay_seconds=0.05)


@pytest.fixture(scope="module")
def server() -> Iterator[ReceiverProcess]:
    with receiver() as process:
        yield process


@pytest.fixture
def fresh() -> Iterator[ReceiverProcess]:
    with receiver() as process:
        yield process


def target(url: str, **others: Any) -> WebhookTarget:
    fields: dict[str, Any] = {
        "receiver": Receiver(
            url=url, headers={"Authorization": f"Bearer {TOKEN}"}, secrets=(TOKEN,), timeout_seconds=2
        ),
        "path": "films/{id}",
        "write": ("films/*",),
        "name": "films.webhook",
        "patience": QUICK,
    }
    return WebhookTarget(**{**fields, **others})


@pytest.fixture
def opened(fresh):
    fresh.mode(key="id")
    return lambda: WebhookSink(target(fresh.url))


@pytest.fixture
def stored(fresh):
    return lambda: {(row["id"], row["name"]) for row in fresh.state()["rows"].values()}


class TestWebhookSink(SinkContract):
    """It keeps the contract of sinks, but for rows that are gone when everything is delivered."""

    def test_a_whole_delivery_leaves_its_rows_and_no_other(self, opened, stored):
        sink = opened()
        sink.prepare(CONTRACT)
        sink.deliver(delivery(None, at(1), [(1, "a"), (2, "b")], whole=True))
        done = sink.deliver(delivery(at(1), at(4), [(1, "A"), (5, "e")], whole=True))
        assert stored() == {(1, "A"), (2, "b"), (5, "e")}
        assert "were not deleted there" in done.notes[0]
        sink.close()


def test_each_kind_of_change_has_its_method_and_its_headers(opened, fresh):
    sink = opened()
    sink.prepare(CONTRACT)
    sink.deliver(replace(delivery(None, at(1), [(1, "a")], whole=True), number=1))
    changed = delivery(at(1), at(2), [(1, "b"), (2, "c")], [3])
    sink.deliver(
        replace(changed, number=2, was_there=lambda rows: [each == 1 for each in rows["id"].to_pylist()])
    )
    found = sorted(
        (each["etl-assets-delivery"], each["method"], each["path"], each["etl-assets-change"])
        for each in fresh.state()["headers"]
    )
    assert found == [
        ("1", "POST", "/films/1", "new"),
        ("2", "DELETE", "/films/3", "deleted"),
        ("2", "POST", "/films/2", "new"),
        ("2", "PUT", "/films/1", "changed"),
    ]
    assert {each["authorization"] for each in fresh.state()["headers"]} == {f"Bearer {TOKEN}"}
    sink.close()


def test_a_refused_row_is_rejected_with_the_receivers_words_and_no_secret(opened, fresh, stored):
    fresh.mode(key="id", refused={"2": 422})
    sink = opened()
    sink.prepare(CONTRACT)
    rejected: list[Rejection] = []
    done = sink.deliver(delivery(None, at(1), [(1, "a"), (2, "b")], whole=True, rejected=rejected))
    assert (done.written, done.rejected, stored()) == (1, 1, {(1, "a")})
    assert rejected[0].keys == '{"id":2}'
    assert rejected[0].error.startswith("422 Unprocessable")
    assert "Bearer …" in rejected[0].error, "the receiver repeats its headers"
    sink.close()


def test_keys_that_would_make_another_path_are_rejected_and_others_are_escaped(fresh):
    contract = TableContract(
        name="films",
        description="Films.",
        columns=(Column("id", "STRING", "Key."), Column("name", "STRING", "Name.", nullable=True)),
        merge_key=("id",),
    )
    names = ["..", ".", "", "a/../b", "é ?#"]
    rows = pa.table({"id": names, "name": names})
    fresh.mode(key="id")
    sink = WebhookSink(target(fresh.url))
    sink.prepare(contract)
    rejected: list[Rejection] = []
    base = delivery(None, at(1), [], whole=True, rejected=rejected)
    done = sink.deliver(replace(base, rows=lambda: iter(rows.to_batches())))
    assert (done.written, done.rejected) == (2, 3)
    assert {each["path"] for each in fresh.state()["headers"]} == {
        "/films/a%2F..%2Fb",
        "/films/%C3%A9%20%3F%23",
    }
    assert {each.error for each in rejected} == {"its keys make no path: an empty value, `.` or `..`"}


@pytest.mark.parametrize("status", [500, 502, 503, 408, 425, 429])
def test_a_busy_receiver_makes_the_sink_unavailable(opened, fresh, status):
    fresh.mode(always=status)
    sink = opened()
    sink.prepare(CONTRACT)
    with pytest.raises(SinkUnavailable, match=str(status)):
        sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
    assert fresh.state()["calls"] == QUICK.attempts
    sink.close()


def test_a_receiver_that_asks_for_a_long_wait_is_not_asked_again_in_this_step(opened, fresh):
    fresh.mode(always=429, retry_after=3600)
    sink = opened()
    sink.prepare(CONTRACT)
    with pytest.raises(SinkUnavailable, match="wait for 3,600 s"):
        sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
    assert fresh.state()["calls"] == 1
    sink.close()


@pytest.mark.parametrize(("status", "said"), [(401, "not allowed"), (302, "redirect"), (307, "redirect")])
def test_no_redirect_is_followed_and_credentials_are_not_tried_row_by_row(
    opened, fresh, server, status, said
):
    before = server.state()["calls"]
    fresh.mode(always=status, location=f"{server.url}/films/1")
    sink = opened()
    sink.prepare(CONTRACT)
    with pytest.raises(SinkRefused, match=said) as refused:
        sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
    assert TOKEN not in str(refused.value)
    assert server.state()["calls"] == before
    sink.close()


def test_what_is_not_allowed_is_refused(server):
    sink = WebhookSink(target(server.url, write=("orders/*",)))
    with pytest.raises(SinkRefused, match="may be written"):
        sink.prepare(CONTRACT)


@pytest.mark.parametrize("fault", [Fault.ANSWERS_LOST, Fault.REFUSED, Fault.CUT, Fault.SILENT])
def test_a_network_that_fails_repeats_calls_with_their_keys(fresh, fault):
    fresh.mode(key="id")
    proxy = FaultProxy(fresh.port, random.Random(1))
    url = f"http://127.0.0.1:{proxy.port}"
    receiver_ = Receiver(url=url, timeout_seconds=0.3)
    sink = WebhookSink(target(url, receiver=receiver_))
    sink.prepare(CONTRACT)
    rows = [(number, f"film {number}") for number in range(20)]
    one = delivery(None, at(1), rows, whole=True)

    def repeatedly() -> None:
        for _ in range(20):
            sink.deliver(one)

    with proxy.fault(fault), pytest.raises(SinkUnavailable):
        repeatedly()
    done = sink.deliver(one)
    state = fresh.state()
    assert done.written == len(state["rows"]) == state["keys"] == 20
    assert state["violations"] == []
    assert sum(state["processed"].values()) == 20
    sink.close()
    proxy.close()


def test_calls_are_signed_as_standard_webhooks_describes():
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", label="HOOKS")
    headers = signature_headers(
        key,
        call_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp=1614265330,
        body=b'{"test": 2432232314}',
    )
    # The example of the specification.
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    for wrong in ("whsec_", "hidden-value", "whsec_!!!"):
        with pytest.raises(SettingsError, match="HOOKS") as refused:
            signing_key(wrong, label="HOOKS")
        assert wrong == "whsec_" or wrong not in str(refused.value)


def test_a_receiver_can_verify_each_call(fresh):
    fresh.mode(key="id")
    key = bytes(range(24))
    sink = WebhookSink(target(fresh.url, signing_key=key))
    sink.prepare(CONTRACT)
    sink.deliver(delivery(None, at(1), [(1, "é")], whole=True))
    (call,) = fresh.state()["headers"]
    body = '{"id":1,"name":"é","_batch_id":1}'
    signed = f"{call['webhook-id']}.{call['webhook-timestamp']}.{body}".encode()
    wanted = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    assert call["webhook-signature"] == f"v1,{wanted}"
    assert call["webhook-id"] == call["idempotency-key"]
    sink.close()


def test_what_a_connection_may_hold():
    base: dict[str, Any] = {"type": "webhook", "url": "https://hooks.example.com/v1/"}
    assert WebhookConnection(**base).url == "https://hooks.example.com/v1"
    wrongs: list[dict[str, Any]] = [
        {"url": "ftp://host/"},
        {"url": "https://user:pw@host/"},
        {"url": "https://host/?a=b"},
        {"url": "https://host:port/"},
        {"url": "https://höst/"},
        {"headers": {"Authorization": "Bearer abc"}},
        {"headers": {"X-Api-Key": "abc"}},
        {"headers": {"Idempotency-Key": "1"}},
        {"headers": {"A\nB": "1"}},
        {"headers": {"A": "1\r\nB: 2"}},
        {"concurrency": 0},
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"webhook|url|headers|concurrency"):
            WebhookConnection(**{**base, **wrong})
    found = WebhookConnection(**base, headers={"Authorization": "Bearer ${T}"}, signing_secret="${S}")
    assert [each.reference for each in found.secrets()] == ["S", "T"]


def test_a_secret_that_would_begin_another_header_is_refused_unseen(tmp_path, server, monkeypatch):
    lab = WebhookLab(tmp_path, server.url)
    lab.write(ROWS[:1])
    monkeypatch.setattr("etl_assets_tests.sinks.webhook_lab.TOKEN", "hidden-value\r\nX: y")
    failed = lab.deliver()
    assert "SettingsError" in failed.stderr
    assert "HOOKS_TOKEN" in failed.stderr
    assert "hidden-value" not in failed.stderr + failed.stdout


def test_retry_after_is_a_number_or_a_time():
    assert seconds_of(None, 0) == 0
    assert seconds_of("7", 0) == 7
    assert seconds_of("Thu, 01 Jan 1970 00:01:00 GMT", 10) == 50
    assert seconds_of("soon", 0) == seconds_of("Thu, 01 Jan 1970 00:00:00 GMT", 10) == 0


def test_progress_is_short_however_many_calls_were_answered():
    progress = CallProgress(rows=500, answered=(*range(100), 102, 103), written=602)
    saved = progress.as_json()
    assert saved["answered"] == [[0, 100], [102, 104]]
    assert CallProgress.from_json(saved) == progress
    assert CallProgress.from_json(None) == CallProgress()


ROWS = [(number, f"film {number}") for number in range(1_200)]
DYING = [
    Failpoint.WEBHOOK_AFTER_CALL,
    Failpoint.WEBHOOK_AFTER_SAVE,
    Failpoint.SINK_AFTER_TARGET_COMMIT,
    f"{Failpoint.TABLE_BEFORE_COMMIT}@films_to_webhook",
]
DYING_AT_OTHER_WRITES = [
    f"{Failpoint.TABLE_BEFORE_COMMIT}@effects",
    f"{Failpoint.TABLE_AFTER_COMMIT}@effects",
    f"{Failpoint.TABLE_AFTER_SYNC}@effects",
    Failpoint.SINK_BEFORE_TARGET_COMMIT,
    f"{Failpoint.TABLE_AFTER_COMMIT}@films_to_webhook",
]


def received(server: ReceiverProcess) -> dict[str, str]:
    return {key: row["title"] for key, row in server.state()["rows"].items()}


@pytest.mark.kill
@pytest.mark.parametrize("dying", [DYING, pytest.param(DYING_AT_OTHER_WRITES, marks=pytest.mark.full)])
def test_killed_at_every_failpoint_each_change_is_processed_once(
    tmp_path: Path, fresh: ReceiverProcess, dying: list[str]
):
    """New, changed, deleted and refused rows; each time the process dies somewhere, and another goes on."""
    lab = WebhookLab(tmp_path, fresh.url)
    fresh.mode(refused={"2": 409})
    lab.write(ROWS)
    assert lab.deliver().returncode == 0
    wanted = {"new": len(ROWS) - 1, "changed": 0, "deleted": 0}
    for number, failpoint in enumerate(dying):
        lab.write([(number, f"changed {number}"), (10_000 + number, "new")])
        lab.delete([100 + number])
        assert lab.deliver(failpoint=str(failpoint)).returncode == -signal.SIGKILL, failpoint
        # The table goes on before the delivery does.
        lab.write([(20_000 + number, "later")])
        done = lab.deliver()
        assert done.returncode == 0, done.stderr
        state = fresh.state()
        assert received(fresh) == {key: row for key, row in lab.stored().items() if key != "2"}, failpoint
        wanted = {
            "new": wanted["new"] + 2,
            "changed": wanted["changed"] + (number != 2),
            "deleted": wanted["deleted"] + 1,
        }
        assert {name: state["processed"].get(name, 0) for name in wanted} == wanted, failpoint
        assert state["violations"] == []
        assert TOKEN not in done.stdout + done.stderr
    assert fresh.state()["repeated"] <= 500 * 4, "a kill repeats at most one part"
    assert next(row["record"] for row in lab.rejected()).startswith('{"film_id":2')
    (row,) = lab.effects()
    assert (row["sink"], row["state"]) == ("films_to_webhook", "completed")
    numbers = [each["to_version"] for each in lab.deliveries()]
    assert numbers == sorted(set(numbers))


def test_a_column_that_no_run_has_added_to_the_table_yet_is_delivered_as_null(
    tmp_path: Path, fresh: ReceiverProcess
):
    lab = WebhookLab(tmp_path, fresh.url)
    lab.write(ROWS[:2])
    declared = PIPELINE.replace("op: string}", "op: string, trace: string}")
    (tmp_path / "pipelines" / "films.yaml").write_text(declared)
    done = lab.deliver()
    assert done.returncode == 0, done.stderr
    assert [row["trace"] for row in fresh.state()["rows"].values()] == [None, None]


def test_what_was_answered_is_not_called_again_after_the_receiver_was_down(
    tmp_path: Path, fresh: ReceiverProcess
):
    lab = WebhookLab(tmp_path, fresh.url, concurrency=4)
    lab.write(ROWS)
    fresh.mode(down_after=700)
    failed = lab.deliver()
    assert failed.returncode == 1
    assert "SinkUnavailable" in failed.stderr
    before = fresh.state()
    lab.write([(0, "changed"), (5_000, "new")])
    fresh.mode()
    done = lab.deliver()
    assert done.returncode == 0, done.stderr
    after = fresh.state()
    assert received(fresh) == lab.stored()
    # Each row once, and the two changes; the calls that were answered by 503 were sent again.
    assert sum(after["processed"].values()) == len(ROWS) + 2
    assert after["calls"] - before["calls"] == len(ROWS) - 700 + 2
    assert [(each["from_version"], each["whole"]) for each in lab.deliveries()] == [(None, True), (1, False)]


def test_an_operator_who_asks_for_everything_gets_calls_with_other_keys(
    tmp_path: Path, fresh: ReceiverProcess
):
    lab = WebhookLab(tmp_path, fresh.url)
    lab.write(ROWS[:30])
    assert lab.deliver().returncode == 0
    for number in (2, 3):
        assert lab.deliver(mode="WHOLE").returncode == 0
        assert fresh.state()["keys"] == 30 * number
    assert lab.deliver().returncode == 0
    assert fresh.state()["calls"] == 90


def test_a_killed_process_is_followed_at_once_and_random_kills_lose_nothing(
    tmp_path: Path, fresh: ReceiverProcess
):
    kill_at_random(tmp_path, fresh, rows=2_000, kills=4, seed=7)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_two_hundred_thousand_rows_under_kills_take_no_more_memory_than_few(
    tmp_path: Path, fresh: ReceiverProcess
):
    (tmp_path / "few").mkdir()
    with receiver() as other:
        lab = WebhookLab(tmp_path / "few" / "home", other.url)
        lab.write(ROWS)
        few = memory(lab.deliver())
    many = kill_at_random(tmp_path, fresh, rows=200_000, kills=10, seed=11)
    assert many < few + 60_000, f"{few:,} kB for {len(ROWS):,} rows, {many:,} kB for 200,000"


def memory(done: subprocess.CompletedProcess[str]) -> int:
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def kill_at_random(home: Path, server: ReceiverProcess, *, rows: int, kills: int, seed: int) -> int:
    """Deliver with kills at random moments; return the memory of the last process in kB."""
    dice = random.Random(seed)
    lab = WebhookLab(home / "home", server.url)
    lab.write((number, f"film {number}") for number in range(rows))
    rare = 1 + rows // 20_000
    server.mode(lose_every=97 * rare, busy_every=89 * rare, busy_status=503, retry_after=0)
    killed = 0
    for _ in range(kills):
        process = lab.start()
        seen = server.calls()
        for _ in range(2_000):
            if process.poll() is not None or server.calls() > seen + rows / (2 * kills):
                break
            time.sleep(0.02)
        time.sleep(dice.uniform(0, 0.3))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
    assert killed >= kills / 2
    server.mode()
    done = lab.deliver()
    size = memory(done)
    state = server.state()
    assert received(server) == lab.stored()
    assert state["processed"] == {"new": rows}
    assert state["keys"] == rows
    assert state["violations"] == []
    (row,) = lab.effects()
    assert len(row["result"]) < 2_000
    return size
