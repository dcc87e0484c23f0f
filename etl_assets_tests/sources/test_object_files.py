"""Files of an object store as a source, on a real S3-compatible server."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from etl_assets.errors import SourceChanged, SourceRefused, SourceUnavailable, SourceUnreadable
from etl_assets.failpoints import Failpoint
from etl_assets.sources.objects.copies import local_copies
from etl_assets.sources.objects.manifest import names_in
from etl_assets.stack.s3 import S3Server
from etl_assets_tests.reference.fault_proxy import Fault, FaultProxy
from etl_assets_tests.sources.lake import CREDENTIALS, REJECTS, SOURCE, Lake, read

DAY = dt.date(2026, 1, 5)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def lake(s3_server: S3Server) -> Lake:
    return Lake.create(s3_server)


def today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()


def listing(folders, day: dt.date):
    return folders.scanned().list_day(day, now_ns=time.time_ns() + 10**9, settle_seconds=0)


def accepted(home) -> list[str]:
    return sorted(json.loads(row["record"])["id"] for row in home.rows(SOURCE))


def test_objects_of_the_folder_are_files_of_the_day_on_which_they_were_written(lake):
    for key in (
        "in/a.csv",
        "in/b.csv",
        "in/.c.csv",
        "in/d.csv.tmp",
        "in/e.txt",
        "in/sub/f.csv",
        "other/g.csv",
    ):
        lake.put(key, "id\n1\n")
    lake.put("in/sub.csv/h", "x")
    found = listing(lake.folders(), today())
    assert [file.name for file in found.files] == ["a.csv", "b.csv"]
    assert sorted(found.set_aside) == [".c.csv", "d.csv.tmp"]
    assert found.ignored == ("sub.csv",)
    assert [day for day, _ in lake.folders().scanned().days()] == [today()]


def test_folders_of_days_name_the_day(lake):
    lake.put(f"in/{DAY}/a.csv", "id\n1\n")
    lake.put("in/2026-13-01/b.csv", "id\n1\n")
    folders = lake.folders(by_day=True)
    assert [day for day, _ in folders.scanned().days()] == [DAY]
    (file,) = listing(folders, DAY).files
    assert (file.position, folders.key_of(file)) == ("2026-01-05/a.csv", "in/2026-01-05/a.csv")


def test_an_object_that_is_written_again_is_another_file_even_within_one_tick_of_the_clock(lake):
    lake.put("in/a.csv", "id\n1\n")
    (before,) = listing(lake.folders(), today()).files
    assert listing(lake.folders(), today()).files == (before,)
    lake.put("in/a.csv", "id\n2\n")
    (after,) = listing(lake.folders(), today()).files
    assert after.size == before.size
    assert after != before


def test_a_copy_that_is_not_what_was_listed_is_refused(lake, tmp_path):
    lake.put("in/a.csv", "id\n1\n")
    folders = lake.folders()
    files = listing(folders, today()).files
    with local_copies([folders], files, tmp_path) as (local,):
        assert local.path_of(files[0]).read_text() == "id\n1\n"
        local.verify(files)
    lake.put("in/a.csv", "id\n2\n")
    with pytest.raises(SourceChanged, match=r"in/a.csv changed"), local_copies([folders], files, tmp_path):
        pass


def test_a_manifest_names_the_files(lake):
    for name in "abc":
        lake.put(f"in/{name}.csv", "id\n1\n")
    folders = lake.folders(manifest="in/manifest.json")
    assert listing(folders, today()).files == ()
    lake.put(
        "in/manifest.json", json.dumps({"files": ["in/a.csv", {"path": f"s3://{lake.bucket}/root/in/b.csv"}]})
    )
    assert [file.name for file in listing(folders, today()).files] == ["a.csv", "b.csv"]
    lake.put("in/manifest.json", "in/c.csv\n\nin/later.csv\n")
    with pytest.raises(SourceUnreadable, match=r"names in/later.csv, which is not there"):
        folders.scanned()
    lake.put("in/manifest.json", '{"files": "a.csv"}')
    with pytest.raises(SourceUnreadable, match=r"is no manifest: it has no list `files`"):
        folders.scanned()


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"\xef\xbb\xbfa.csv\r\n b.csv \n", {"a.csv", "b.csv"}),
        (b'["a.csv", {"key": "b.csv"}, {"url": "s3://b/r/c.csv"}]', {"a.csv", "b.csv", "c.csv"}),
        (b'{"files": []}', set()),
    ],
)
def test_forms_of_a_manifest(content, names):
    assert names_in(content, root="s3://b/r") == names


@pytest.mark.parametrize("content", [b"{", b"[1]", b"[{}]", b'{"file": []}', b"\xff\xfe"])
def test_what_is_no_manifest(content):
    with pytest.raises(ValueError, match=r"\w"):
        names_in(content, root="s3://b/r")


def test_each_record_is_read_once_whatever_is_written_between(lake, tmp_path):
    home = lake.home(tmp_path)
    lake.put("in/a.csv", "id,age\na,1\nb,2\n")
    lake.put("in/b.csv.gz", gzip.compress(b"id,age\nc,3\n"))
    report = read(home)
    assert accepted(home) == ["a", "b"]
    assert read(home).commits == 0
    lake.put("in/a.csv", "id,age\na,1\nd,4\n")
    report = read(home)
    assert accepted(home) == ["a", "b", "d"]
    assert any("a.csv changed after it had been read" in note for note in report.notes)
    assert {row["outcome"] for row in home.rows(REJECTS)} == {"duplicate"}


def test_compressed_days_and_a_file_that_is_cut_off(lake, tmp_path):
    home = lake.home(tmp_path, path="in/{day}/*.csv.gz")
    whole = gzip.compress(b"id,age\na,1\n" + b"b,2\n" * 1000)
    lake.put(f"in/{DAY}/a.csv.gz", whole[:-20])
    with pytest.raises(SourceUnreadable, match=rf"s3://{lake.bucket}/root/in/{DAY}/a.csv.gz cannot be"):
        read(home, [DAY])
    lake.put(f"in/{DAY}/a.csv.gz", gzip.compress(b"id,age\na,1\n"))
    read(home, [DAY])
    assert accepted(home) == ["a"]
    assert not list((home.path / "data").rglob("objects"))


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.CUT, Fault.ANSWERS_LOST])
def test_a_network_that_fails_leaves_nothing_half_read(s3_server, tmp_path, fault):
    proxy = FaultProxy(s3_server.port, random.Random(3))
    lake = Lake.create(s3_server, proxy.port)
    home = lake.home(tmp_path)
    for number in range(5):
        lake.put(f"in/{number}.csv", "id,age\n" + "".join(f"{number}-{row},{row}\n" for row in range(2_000)))

    def repeatedly() -> None:
        for _ in range(5):
            read(home)

    if fault is Fault.CUT:
        with proxy.fault(fault):
            for _ in range(3):
                try:
                    read(home)
                except SourceUnavailable:
                    continue
                break
    else:
        with proxy.fault(fault), pytest.raises(SourceUnavailable):
            repeatedly()
        assert home.rows(SOURCE) == []
    read(home)
    assert len(accepted(home)) == len(set(accepted(home))) == 10_000
    assert home.rows(REJECTS) == []
    proxy.close()


def test_a_server_that_is_killed_while_it_is_read_and_started_again(tmp_path):
    with S3Server() as server:
        proxy = FaultProxy(server.port, random.Random(5))
        lake = Lake.create(server, proxy.port)
        home = lake.home(tmp_path)
        content = "id,age\n" + "".join(f"{row:06d},1\n" for row in range(40_000))
        lake.put("in/a.csv", content)
        failed: list[Exception] = []

        def reading() -> None:
            try:
                read(home)
            except SourceUnavailable as error:
                failed.append(error)

        with proxy.fault(Fault.SLOW):
            thread = threading.Thread(target=reading)
            thread.start()
            time.sleep(0.3)
            server.kill()
            thread.join(60)
        assert failed
        assert home.rows(SOURCE) == []
        with pytest.raises((SourceUnavailable, SourceRefused)):
            read(home)
        server.start()
        lake.make()
        lake.put("in/a.csv", content)
        read(home)
        assert len(set(accepted(home))) == 40_000
        proxy.close()


def test_a_missing_connection_bucket_or_secret_is_named(lake, tmp_path, monkeypatch):
    home = lake.home(tmp_path, connection="sea")
    with pytest.raises(SourceRefused, match=r"no connection 'sea' of type object_store"):
        read(home)
    home = lake.home(tmp_path / "other")
    lake.bucket = "nowhere-to-be-found"
    gone = lake.home(tmp_path / "gone")
    with pytest.raises(SourceRefused, match="there is no such bucket"):
        read(gone)
    monkeypatch.delenv("LAKE_KEY")
    with pytest.raises(Exception, match="LAKE_KEY"):
        read(home)


MEASURE = """
import resource, sys
from pathlib import Path
from etl_assets_tests.sources.lake import Lake
from etl_assets.sources.objects.copies import local_copies

class Server:
    port = int(sys.argv[1]); url = f"http://127.0.0.1:{port}"

lake = Lake(Server, sys.argv[2], Server.port)
folders = lake.folders().scanned()
(day,) = [day for day, _ in folders.days()]
(file,) = folders.list_day(day, now_ns=2**62, settle_seconds=0).files
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with local_copies([folders], [file], Path(sys.argv[3])) as (local,):
    assert local.path_of(file).stat().st_size == file.size
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_large_object_is_not_held_in_memory(lake, tmp_path):
    lake.put("in/a.csv", b"x" * (160 << 20))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(lake.port), lake.bucket, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 90_000, "kB more than before"


@pytest.mark.spark
@pytest.mark.kill
def test_a_killed_run_is_completed_and_the_worker_follows(lake, tmp_path):
    home = lake.home(tmp_path)
    lake.put("in/a.csv", "id,age\na,1\nbad\n")
    assert home.call("pipelines", "validate").code == 0
    died = home.call("run", failpoint=f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{SOURCE}")
    assert died.code != 0, died
    done = home.call("run")
    assert done.code == 0, done
    assert sorted(row["id"] for row in home.rows("people")) == ["a"]
    assert len(home.rows(REJECTS)) == 1
    again = home.call("run")
    assert f"s3://{lake.bucket}/root/in" in again.out + again.err or again.code == 0
    worker = home.start("worker")
    try:
        lake.put("in/b.csv", "id,age\nb,2\n")
        until = time.monotonic() + 90
        while time.monotonic() < until and len(home.rows("people")) < 2:
            time.sleep(0.5)
    finally:
        worker.send(signal.SIGTERM)
        worker.ended(60)
    assert sorted(row["id"] for row in home.rows("people")) == ["a", "b"], worker.err
    traced = home.call("trace", '"b"')
    assert f"s3://{lake.bucket}/root/in/b.csv" in traced.out, traced
