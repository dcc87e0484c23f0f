"""One contract for every store: a folder, a bucket, the in-memory twin."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore as ObjectMemory

from etl_assets.errors import SettingsError, Unanswered
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.stores.conditional_write_check import broken_promise
from etl_assets.mirroring.stores.local_store import LocalStore
from etl_assets.mirroring.stores.object_store import ObjectStore
from etl_assets.mirroring.stores.opening import open_store
from etl_assets.mirroring.stores.store import Store
from etl_assets.testing.memory_store import MemoryStore, StoreFault
from etl_assets_tests.reference import azure_server

KEY = "tables/events/g000001/_delta_log/00000000000000000000.json"


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from azure_server.running(monkeypatch)


@pytest.fixture(
    params=["folder", "object store", "in-memory twin", pytest.param("azure", marks=azure_server.is_here)]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return LocalStore(tmp_path)
    if request.param == "azure":
        return ObjectStore.open(request.getfixturevalue("azure"))
    if request.param == "object store":
        return ObjectStore(ObjectMemory(), name="memory")
    return MemoryStore("memory")


def tag(store: Store, key: str = KEY) -> str:
    found = store.get(key)
    assert found is not None
    return found.etag


def test_what_was_created_is_read_back(store):
    assert store.create(KEY, b"one")
    found = store.get(KEY)
    assert found is not None
    assert found.content == b"one"


def test_a_key_that_is_not_there_is_nothing_and_no_error(store):
    assert store.get(KEY) is None
    assert store.read(KEY) is None
    assert store.size(KEY) is None
    assert store.modified(KEY) is None
    assert list(store.list("tables/")) == []
    store.delete(KEY)


def test_creating_what_exists_is_refused_and_changes_nothing(store):
    store.create(KEY, b"one")
    assert not store.create(KEY, b"two")
    assert store.get(KEY).content == b"one"


def test_replacing_what_was_read_succeeds_once(store):
    store.create(KEY, b"one")
    old = tag(store)
    assert store.replace(KEY, b"two", old)
    assert not store.replace(KEY, b"three", old)
    assert store.get(KEY).content == b"two"


def test_replacing_what_is_gone_is_refused(store):
    store.create(KEY, b"one")
    old = tag(store)
    store.delete(KEY)
    assert not store.replace(KEY, b"two", old)
    assert store.get(KEY) is None


def test_of_many_that_create_at_once_one_wins(store):
    assert race(lambda name: store.create(KEY, name)) == [store.get(KEY).content]


def test_of_many_that_replace_at_once_one_wins(store):
    store.create(KEY, b"before")
    old = tag(store)
    assert race(lambda name: store.replace(KEY, name, old)) == [store.get(KEY).content]


def test_a_store_that_refuses_what_it_must_keeps_its_promise_and_nothing_is_left_in_it(store, tmp_path):
    assert broken_promise(store) is None
    assert list(store.list("health/")) == []


class CreatesOver(MemoryStore):
    """Takes the condition of a create, and does not look."""

    def create(self, key: str, content: bytes) -> bool:
        self.files[key] = content
        return True


class CreatesOverAndDeniesIt(MemoryStore):
    def create(self, key: str, content: bytes) -> bool:
        self.files[key] = content
        return False


class ReplacesWhatever(MemoryStore):
    """Takes the condition of a replacement, and does not look."""

    def replace(self, key: str, content: bytes, etag: str) -> bool:
        self.files[key] = content
        return True


class ReplacesNothing(MemoryStore):
    def replace(self, key: str, content: bytes, etag: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (CreatesOver, "If-None-Match"),
        (CreatesOverAndDeniesIt, "If-None-Match"),
        (ReplacesWhatever, "is not as it was read any more"),
        (ReplacesNothing, "does not replace"),
    ],
)
def test_a_store_that_does_not_look_at_conditions_is_found_out(kind, says):
    store = kind("lax")
    assert says in str(broken_promise(store))
    assert store.files == {}


def race(attempt) -> list[bytes]:
    names = [f"writer {number}".encode() for number in range(8)]
    start, won = threading.Barrier(len(names)), []

    def run(name: bytes) -> None:
        start.wait()
        if attempt(name):
            won.append(name)

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_a_data_file_is_written_from_chunks_and_read_in_chunks(store):
    chunks = [os.urandom(3_000_000) for _ in range(4)]
    store.put("tables/events/part-1.parquet", iter(chunks))
    store.persist(["tables/events/part-1.parquet"])
    assert store.size("tables/events/part-1.parquet") == 12_000_000
    assert b"".join(store.read("tables/events/part-1.parquet")) == b"".join(chunks)


def test_a_file_tells_when_it_was_written(store):
    began = time.time()
    store.create(KEY, b"one")
    store.put("tables/events/part-1.parquet", [b"rows"])
    for key in (KEY, "tables/events/part-1.parquet"):
        # Clocks of file systems tick more coarsely.
        assert began - 2 < store.modified(key) < time.time() + 2


def test_a_data_file_gets_a_second_name(store):
    store.put("old/part-1.parquet", [b"rows"])
    linked = store.link("old/part-1.parquet", "new/part-1.parquet")
    assert not store.link("old/part-2.parquet", "new/part-2.parquet")
    store.delete("old/part-1.parquet")
    assert linked == (not store.name.startswith("az://")), "Azure copies when it likes"
    assert b"".join(store.read("new/part-1.parquet") or ()) == (b"rows" if linked else b"")


def test_a_listing_has_keys_of_any_depth_under_a_prefix(store):
    for key in ("a/1", "a/b/2", "ab/3"):
        store.put(key, [b"x"])
    assert sorted(store.list("a/")) == ["a/1", "a/b/2"]


def test_a_folder_that_is_not_mounted_does_not_answer_and_is_not_created(tmp_path):
    store = LocalStore(tmp_path / "absent")
    for ask in (
        lambda: store.get(KEY),
        lambda: store.create(KEY, b"one"),
        lambda: store.replace(KEY, b"one", "tag"),
        lambda: store.put(KEY, [b"one"]),
        lambda: store.read(KEY),
        lambda: store.link(KEY, "other"),
        lambda: store.persist([KEY]),
        lambda: store.size(KEY),
        lambda: store.modified(KEY),
        lambda: list(store.list("tables/")),
        lambda: store.delete(KEY),
        lambda: list(store.unfinished("tables/")),
        lambda: store.prune("tables/"),
    ):
        with pytest.raises(Unanswered, match="absent"):
            ask()
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("folder", ["tables", "tables/events/g000001", "tables/events/g000001/_delta_log"])
@pytest.mark.parametrize("problem", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOTDIR])
def test_a_folder_that_cannot_be_listed_does_not_answer_and_is_not_taken_for_an_empty_one(
    tmp_path, monkeypatch, folder, problem
):
    store = LocalStore(tmp_path)
    store.create(KEY, b"one")
    unlistable(monkeypatch, tmp_path / folder, problem)
    for ask in (
        lambda: list(store.list("tables/")),
        lambda: list(store.unfinished("tables/")),
        lambda: store.prune("tables/"),
    ):
        with pytest.raises(Unanswered, match=os.strerror(problem)):
            ask()


def test_a_folder_that_is_removed_while_it_is_listed_is_an_empty_one(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    store.create(KEY, b"one")
    store.create("tables/orders/1", b"one")
    unlistable(monkeypatch, tmp_path / "tables" / "events", errno.ENOENT)
    assert list(store.list("tables/")) == ["tables/orders/1"]


def test_a_root_that_goes_away_while_it_is_listed_does_not_answer(tmp_path, monkeypatch):
    root = tmp_path / "root"
    root.mkdir()
    store = LocalStore(root)
    store.create(KEY, b"one")
    scandir = os.scandir

    def gone(path):
        root.rename(tmp_path / "away")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone)
    with pytest.raises(Unanswered, match="the root is not there"):
        list(store.list("tables/"))


def test_a_page_of_a_listing_without_keys_is_not_its_end(monkeypatch):
    pages = [[{"path": "a/1"}], [], [{"path": "a/2"}]]
    monkeypatch.setattr(obstore, "list", lambda *_: iter(pages))
    assert list(ObjectStore(ObjectMemory(), name="memory").list("a/")) == ["a/1", "a/2"]


def unlistable(monkeypatch, folder: Path, problem: int) -> None:
    """Have listings of one folder fail, as those of a bad disk or of another user's folder do."""
    scandir = os.scandir

    def failing(path):
        if Path(path) == folder:
            raise OSError(problem, os.strerror(problem), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)


def test_a_file_is_copied_from_the_next_replica_if_one_does_not_answer(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    here, absent, there = (
        ReplicaStore(LocalStore(tmp_path / domain), table="events", domain=domain)
        for domain in ("b", "a", "c")
    )
    entry = b'{"add": {"path": "part-1.parquet", "size": 4}}'
    there.store.put(f"{there.folder(1)}/part-1.parquet", [b"rows"])
    with pytest.raises(Unanswered, match="the root is not there"):
        here.fetch(1, [entry], [(absent, 1)])
    here.fetch(1, [entry], [(absent, 1), (there, 1)])
    assert (tmp_path / "b" / here.folder(1) / "part-1.parquet").read_bytes() == b"rows"


def test_a_folder_whose_lock_is_held_does_not_answer(tmp_path):
    import fcntl

    store = LocalStore(tmp_path, lock_wait_seconds=0.05)
    store.create(KEY, b"one")
    assert store.replace(KEY, b"two", tag(store))
    (lock,) = (tmp_path / KEY).parent.glob(".mirror-lock-*")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Unanswered, match="lock"):
            store.replace(KEY, b"three", tag(store))
    assert (tmp_path / KEY).read_bytes() == b"two"


def test_a_folder_keeps_no_temporary_files_and_lists_none(tmp_path):
    store = LocalStore(tmp_path)
    store.create("a/1", b"one")
    store.create("a/1", b"two")
    store.replace("a/1", b"three", tag(store, "a/1"))
    assert list(store.list("a/")) == ["a/1"]
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"1", ".mirror-lock-1"}


def test_what_a_killed_write_left_is_told_of_and_a_lock_is_not(tmp_path):
    store = LocalStore(tmp_path)
    store.create("a/b/1", b"one")
    store.replace("a/b/1", b"two", tag(store, "a/b/1"))

    class Killed(BaseException):
        pass

    def dying():
        yield b"half"
        assert len(list(store.unfinished("a/"))) == 1
        raise Killed

    with pytest.raises(Killed):
        store.put("a/b/2", dying())
    left = tmp_path / "a" / "b" / ".mirror-0123456789abcdef"
    left.write_bytes(b"half")
    assert list(store.unfinished("a/")) == ["a/b/.mirror-0123456789abcdef"]
    store.delete("a/b/.mirror-0123456789abcdef")
    assert list(store.unfinished("a/")) == []
    assert list(store.list("a/")) == ["a/b/1"]


def test_folders_with_nothing_in_them_are_removed_and_others_stay(store, tmp_path):
    for key in ("a/b/1", "a/c/2", "a/c/d/3"):
        store.create(key, b"one")
    store.delete("a/b/1")
    store.delete("a/c/d/3")
    for prefix in ("a/", "not/there/"):
        store.prune(prefix)
        store.prune(prefix)
    assert list(store.list("a/")) == ["a/c/2"]
    if isinstance(store, LocalStore):
        assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
            "a",
            "a/c",
            "a/c/2",
        ]


def test_a_file_that_is_not_read_to_its_end_is_not_left_open(tmp_path):
    store = LocalStore(tmp_path)
    store.put("part", [b"rows"] * 3)

    def is_open() -> bool:
        return any(link.resolve() == tmp_path / "part" for link in Path("/proc/self/fd").iterdir())

    unread, begun = store.read("part"), store.read("part")
    assert unread is not None
    assert begun is not None
    assert not is_open()
    next(begun)
    assert is_open()
    del begun
    assert not is_open()


def test_a_key_cannot_leave_its_root(tmp_path):
    with pytest.raises(ValueError, match="leaves the root"):
        LocalStore(tmp_path).get("../outside")


@pytest.mark.parametrize(
    "uri",
    [
        "s3://name:secret@bucket/prefix",
        "s3://bucket/prefix?key=secret",
        "nothing://bucket",
        "gs://bucket/prefix",
    ],
)
def test_an_address_with_credentials_or_of_no_known_store_is_refused_without_showing_them(uri):
    with pytest.raises(SettingsError) as refused:
        ObjectStore.open(uri)
    assert "secret" not in str(refused.value)


def test_a_root_is_opened_by_what_it_looks_like(tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    assert open_store(str(folder)).create("x", b"1")
    assert (folder / "x").read_bytes() == b"1"
    with pytest.raises(SettingsError):
        open_store(folder.as_uri())
    assert isinstance(open_store("memory:///"), ObjectStore)


def test_an_address_of_memory_opens():
    assert ObjectStore.open("memory:///").create("a", b"one")


class OneFault:
    """Lets one operation meet a fault."""

    def __init__(self, fault: StoreFault) -> None:
        self.fault: StoreFault | None = fault
        self.effects = []

    def before(self, store, operation, key):
        fault, self.fault = self.fault, None
        return fault

    def after(self, store, operation, key):
        pass

    def later(self, store, effect):
        self.effects.append(effect)


@pytest.mark.parametrize(
    ("fault", "answered", "done", "done_later"),
    [
        (StoreFault.LOST, False, False, False),
        (StoreFault.UNANSWERED, False, True, True),
        (StoreFault.LATE, False, False, True),
        (StoreFault.TWICE, True, True, True),
    ],
)
def test_the_twin_fails_as_a_network_does(fault, answered, done, done_later):
    weather = OneFault(fault)
    store = MemoryStore("twin", weather)
    if answered:
        assert store.create(KEY, b"one")
    else:
        with pytest.raises(Unanswered):
            store.create(KEY, b"one")
    assert (store.get(KEY) is not None) is done
    for effect in weather.effects:
        effect()
    assert (store.get(KEY) is not None) is done_later
