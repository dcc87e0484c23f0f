"""Where a stage may run, where it does run, and roots that are not what they were."""

from __future__ import annotations

import shutil
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from etl_assets.errors import DomainUnavailable, SettingsError, Unanswered
from etl_assets.mirroring.stores.opening import open_store
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domain_registry import AdminState, DomainRegistry
from etl_assets.placement.policy import PlacementPolicy, covers
from etl_assets.settings import Settings, load_settings
from etl_assets.steps.placing import place

DOMAINS = [{"name": f"aws/eu-1/{zone}", "root": zone} for zone in "abc"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


def settings(home: Path, **fields: object) -> Settings:
    (home / "platform.yaml").write_text(yaml.safe_dump({"domains": DOMAINS, **fields}), "utf-8")
    return load_settings()


@pytest.mark.parametrize(
    ("outer", "domain", "means"),
    [
        ("aws", "aws/eu-1/a", True),
        ("aws/eu-1", "aws/eu-1/a", True),
        ("aws/eu-1/a", "aws/eu-1/a", True),
        ("aws/eu-1/b", "aws/eu-1/a", False),
        ("aws/eu", "aws/eu-1/a", False),
        ("aws/eu-1/a", "aws/eu-1", False),
        ("*", "gcp/us", True),
    ],
)
def test_an_outer_name_means_what_lies_in_it(outer, domain, means):
    assert covers(outer, domain) is means


def test_a_stage_that_the_policy_does_not_name_may_run_anywhere():
    policy = PlacementPolicy(allowed={PlacementClass.SINK: ("gcp",)})
    assert policy.allows(PlacementClass.INGEST, "aws/eu-1/a")
    assert policy.allows(PlacementClass.SINK, "gcp/us")
    assert not policy.allows(PlacementClass.SINK, "aws/eu-1/a")


def test_a_stage_stays_where_it_is_led_and_moves_only_where_it_may(home):
    placement = settings(home, placement_policy={"ingest": ["aws/eu-1/b", "aws/eu-1/c"]}).placement()
    assert placement.place(PlacementClass.INGEST).name == "aws/eu-1/b"
    assert placement.place(PlacementClass.INGEST, leader="aws/eu-1/c").name == "aws/eu-1/c"
    assert placement.place(PlacementClass.INGEST, leader="aws/eu-1/a").name == "aws/eu-1/b"
    placement.memory.set_standing("aws/eu-1/c", AdminState.FAILED)
    assert placement.place(PlacementClass.INGEST, leader="aws/eu-1/c").name == "aws/eu-1/b"


def test_a_domain_that_may_but_cannot_is_not_replaced_by_one_that_may_not(home):
    placement = settings(home, placement_policy={"sink": ["aws/eu-1/b"]}).placement()
    placement.memory.set_standing("aws/eu-1/b", AdminState.DRAINED)
    with pytest.raises(DomainUnavailable, match="aws/eu-1/b: drained by an operator") as refused:
        placement.place(PlacementClass.SINK)
    assert refused.value.allowed == ("aws/eu-1/b",)
    assert placement.place(PlacementClass.INGEST).name == "aws/eu-1/a"


def test_a_stage_asked_to_run_where_it_may_not_is_refused_with_what_is_allowed(home):
    placement = settings(home, placement_policy={"sink": ["aws/eu-1/b"]}).placement()
    placement.expect_allowed(PlacementClass.SINK, "aws/eu-1/b", table="warehouse_rows")
    with pytest.raises(
        DomainUnavailable, match="not allow stage sink of warehouse_rows in aws/eu-1/a"
    ) as refused:
        placement.expect_allowed(PlacementClass.SINK, "aws/eu-1/a", table="warehouse_rows")
    assert refused.value.fields == {
        "table": "warehouse_rows",
        "stage": "sink",
        "domain": "aws/eu-1/a",
        "allowed": ("aws/eu-1/b",),
    }


def test_a_table_whose_stage_can_run_nowhere_is_named_with_what_is_wrong(home):
    placement = settings(home, placement_policy={"sink": ["aws/eu-1/b"]}).placement()
    placement.memory.set_standing("aws/eu-1/b", AdminState.FAILED)
    with pytest.raises(
        DomainUnavailable, match="stage sink of warehouse_rows: aws/eu-1/b: failed by"
    ) as refused:
        place(placement, "warehouse_rows")
    assert refused.value.fields == {
        "table": "warehouse_rows",
        "stage": "sink",
        "domain": "aws/eu-1/b",
        "allowed": ("aws/eu-1/b",),
    }


def test_a_root_that_was_emptied_is_not_taken_for_a_new_one(home):
    placement = settings(home).placement()
    first, second, _ = placement.domains
    assert placement.place(PlacementClass.INGEST) == first
    (first.root / "domain.json").unlink()
    with pytest.raises(DomainUnavailable, match="emptied, or its disk is not mounted"):
        settings(home, domains=DOMAINS[:1]).placement().place(PlacementClass.INGEST)
    assert settings(home).placement().place(PlacementClass.INGEST) == second
    assert not (first.root / "domain.json").exists()
    placement.memory.forget(first.name)
    assert placement.place(PlacementClass.INGEST) == first


def test_a_root_that_cannot_be_made_stops_its_own_domain_only(home):
    (home / "a").write_text("a file in the place of the folder")
    placement = settings(home).placement()
    assert placement.place(PlacementClass.INGEST).name == "aws/eu-1/b"
    with pytest.raises(DomainUnavailable, match="its root"):
        settings(home, domains=DOMAINS[:1]).placement().place(PlacementClass.INGEST)


def test_looking_at_domains_makes_nothing(home):
    placement = settings(home).placement()
    assert placement.reader().root == placement.domains[0].root
    assert [placement.problem(domain) for domain in placement.domains] == [None, None, None]
    assert sorted(path.name for path in home.iterdir()) == ["platform.yaml"]


def test_a_root_that_is_not_there_any_more_is_not_made_again(home):
    placement = settings(home).placement()
    first = placement.place(PlacementClass.INGEST)
    shutil.rmtree(first.root)
    assert "emptied" in (placement.problem(first) or "")
    assert not first.root.exists()


def test_the_root_of_another_domain_is_refused(home):
    placement = settings(home).placement()
    placement.place(PlacementClass.INGEST)
    (home / "domains.json").unlink()
    other = settings(home, domains=[{"name": "other", "root": "a"}]).placement()
    assert "belongs to the domain aws/eu-1/a" in (other.problem(other.domains[0]) or "")


def test_a_root_that_two_domains_reach_by_different_paths_is_the_first_ones(home):
    (home / "a").mkdir()
    (home / "b").symlink_to(home / "a")
    placement = settings(home).placement()
    assert placement.place(PlacementClass.INGEST).name == "aws/eu-1/a"
    assert "belongs to the domain aws/eu-1/a" in (placement.problem(placement.domains[1]) or "")


def test_two_disks_that_were_mounted_in_each_others_place_are_not_used(home):
    placement = settings(home).placement()
    placement.place(PlacementClass.INGEST)
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        (home / old).rename(home / new)
    assert placement.place(PlacementClass.INGEST).name == "aws/eu-1/c"
    for domain in placement.domains[:2]:
        assert "replaced by another one" in (placement.problem(domain) or "")


def test_a_new_home_folder_takes_the_roots_of_a_platform_over_and_makes_none_that_is_missing(
    home, monkeypatch
):
    placement = settings(home).placement()
    placement.place(PlacementClass.INGEST)
    (home / "a").rename(home / "away")
    shared = [{**each, "root": str(home / each["root"])} for each in DOMAINS]
    second = home / "second"
    second.mkdir()
    monkeypatch.setenv("ETL_ASSETS_HOME", str(second))
    taken = settings(second, domains=shared).placement()
    assert taken.reader().sites, "there is a platform, though nothing of it is remembered here"
    for _ in range(2):
        assert taken.place(PlacementClass.INGEST).name == "aws/eu-1/b"
        assert "not mounted" in (taken.problem(taken.domains[0]) or "")
    assert not (home / "a").exists()
    (home / "away").rename(home / "a")
    taken.heal("aws/eu-1/a")
    assert taken.place(PlacementClass.INGEST).name == "aws/eu-1/a"
    (home / "a" / "domain.json").unlink()
    assert "emptied" in (taken.problem(taken.domains[0]) or ""), "from now on it is known by its id"


def test_a_root_that_is_expected_to_be_marked_is_not_marked_anew(home):
    memory, root = DomainRegistry(home / "domains.json"), home / "a"
    memory.take_over({"rack/a": None, "rack/b": "its id"})
    with pytest.raises(Unanswered):
        memory.take("rack/a", str(root))
    assert not root.exists()
    memory.take_over({"rack/a": "another", "rack/b": "another"})
    assert memory.of("rack/b").root_id == "its id", "what is remembered stays"


def test_two_processes_that_use_new_roots_at_once_do_not_take_each_other_for_an_earlier_platform(
    home, monkeypatch
):
    ours, other = settings(home).placement(), settings(home).placement()

    def marked_and_seen_at_once(root):
        store = open_store(root)
        create = store.create

        def create_and_look(key, content):
            create(key, content)
            other.watch.take_over(other.sites)

        monkeypatch.setattr(store, "create", create_and_look)
        return store

    monkeypatch.setattr("etl_assets.placement.domain_registry.open_store", marked_and_seen_at_once)
    assert ours.place(PlacementClass.INGEST).name == "aws/eu-1/a"
    assert [ours.problem(each) for each in ours.domains] == [None, None, None]
    assert all((home / zone / "domain.json").exists() for zone in "abc")


def test_a_process_that_was_killed_before_it_marked_a_root_lets_the_next_one_mark_it(home, monkeypatch):
    def killed(root):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("etl_assets.placement.domain_registry.open_store", killed)
        with pytest.raises(KeyboardInterrupt):
            DomainRegistry(home / "domains.json").take("aws/eu-1/a", str(home / "a"))
    placement = settings(home).placement()
    assert placement.place(PlacementClass.INGEST).name == "aws/eu-1/a"
    assert [placement.problem(each) for each in placement.domains] == [None, None, None]


def test_a_lost_disk_of_a_platform_that_was_taken_over_is_replaced_by_an_operator_only(home, monkeypatch):
    settings(home).placement().place(PlacementClass.INGEST)
    shutil.rmtree(home / "c")
    (home / "c").mkdir()
    (home / "domains.json").unlink()
    placement = settings(home).placement()
    placement.place(PlacementClass.INGEST)
    assert "not mounted" in (placement.problem(placement.domains[2]) or "")
    assert list((home / "c").iterdir()) == []
    placement.heal("aws/eu-1/c", new_root=True)
    placement.place(PlacementClass.INGEST)
    assert placement.problem(placement.domains[2]) is None


def test_a_stage_is_stopped_only_when_none_that_may_can(home):
    placement = settings(home, placement_policy={"sink": ["aws/eu-1/b", "aws/eu-1/c"]}).placement()
    assert placement.stopped(PlacementClass.SINK) is None
    placement.memory.set_standing("aws/eu-1/b", AdminState.FAILED)
    assert placement.stopped(PlacementClass.SINK) is None
    placement.memory.set_standing("aws/eu-1/c", AdminState.DRAINED)
    assert "aws/eu-1/b: failed by an operator" in (placement.stopped(PlacementClass.SINK) or "")
    assert placement.stopped(PlacementClass.INGEST) is None
    assert not (home / "a").exists(), "looking makes nothing"


def test_a_memory_that_cannot_be_read_is_named(home):
    placement = settings(home).placement()
    (home / "domains.json").write_text("[]")
    with pytest.raises(SettingsError, match=r"domains\.json"):
        placement.place(PlacementClass.INGEST)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"domains": [DOMAINS[0], {**DOMAINS[1], "name": DOMAINS[0]["name"]}]},
            "name aws/eu-1/a stands twice",
        ),
        ({"domains": [DOMAINS[0], {**DOMAINS[1], "root": "a"}]}, "stands twice"),
        ({"domains": [{**each, "role": "learner"} for each in DOMAINS]}, "none is a voter"),
        ({"domains": [{**DOMAINS[0], "role": "king"}]}, "role"),
        ({"placement_policy": {"ingest": ["gcp"]}}, "gcp is no domain"),
        ({"placement_policy": {"sink": []}}, "placement_policy.sink allows no voter"),
        ({"placement_policy": {"cook": ["aws"]}}, "cook"),
        (
            {"domains": [{"name": "s3/a", "root": "s3://bucket/a"}]},
            "no voter has a folder",
        ),
        (
            {"domains": [{"name": "s3/a", "root": "s3://bucket/a"}, {**DOMAINS[0], "role": "learner"}]},
            "no voter has a folder",
        ),
        (
            {
                "domains": [*DOMAINS[:2], {"name": "s3/a", "root": "s3://bucket/a"}],
                "placement_policy": {"sink": ["s3"]},
            },
            "placement_policy.sink allows no voter that may lead",
        ),
        (
            {"domains": [DOMAINS[0], *({"name": f"s3/{n}", "root": f"s3://b-1/p{'/' * n}"} for n in (0, 1))]},
            "root s3://b-1/p stands twice",
        ),
        ({"domains": [DOMAINS[0], {"name": "ftp", "root": "ftp://host/a"}]}, "neither a folder nor s3"),
    ],
)
def test_domains_and_policies_that_make_no_sense_stop_at_load(home, fields, says):
    with pytest.raises(SettingsError, match=says):
        settings(home, **fields)


def test_two_that_use_a_root_for_the_first_time_at_once_agree_on_it(home):
    # A sensor and a run may both be the first.
    for number in range(20):
        root = home / f"root-{number}"
        memory = DomainRegistry(home / f"domains-{number}.json")
        with ThreadPoolExecutor(8) as threads:
            done = [threads.submit(memory.take, "rack/a", str(root)) for _ in range(8)]
        assert all(each.exception() is None for each in done)
        assert memory.strange("rack/a", str(root)) is None


def test_what_an_operator_says_is_not_lost_to_a_root_that_is_taken_at_that_moment(home):
    memory = DomainRegistry(home / "domains.json")
    names = [f"rack/{number}" for number in range(16)]
    with ThreadPoolExecutor(8) as threads:
        said = [threads.submit(memory.set_standing, name, AdminState.FAILED) for name in names]
        taken = [threads.submit(memory.take, name, str(home / name)) for name in names]
    assert all(done.exception() is None for done in (*said, *taken))
    assert {memory.of(name).standing for name in names} == {AdminState.FAILED}
    assert [memory.strange(name, str(home / name)) for name in names] == [None] * len(names)


@pytest.mark.parametrize(
    "root", ["s3://key:secret@bucket/a", "s3://bucket/a?secret_access_key=secret", "https://secret@host/a"]
)
def test_an_address_with_credentials_is_refused_and_not_shown(home, root):
    domains = [*DOMAINS, {"name": "s3/a", "root": root}]
    with pytest.raises(SettingsError, match="neither a folder nor s3") as refused:
        settings(home, domains=domains)
    told = "".join(traceback.format_exception(refused.value)) + str(refused.value.fields)
    assert "secret" not in told
    assert "bucket" in told or "host" in told


def test_a_root_on_a_store_that_was_not_tried_is_refused_with_those_that_were(home):
    with pytest.raises(SettingsError, match=r"Google Cloud Storage is not among .* az://container/prefix"):
        settings(home, domains=[*DOMAINS, {"name": "gcp/a", "root": "gs://bucket/a"}])
    assert settings(home, domains=[*DOMAINS, {"name": "azure/a", "root": "az://container/a"}]).domains


def test_a_domain_on_an_object_store_runs_no_stage_wherever_it_stands(home):
    bucket = {"name": "s3/a", "root": "s3://bucket/a"}
    placement = settings(home, domains=[bucket, *DOMAINS]).placement()
    assert [each.name for each in placement.domains] == [each["name"] for each in DOMAINS]
    assert [site.name for site in placement.sites] == ["s3/a", *(each["name"] for each in DOMAINS)]
    assert placement.domains[0].sites == placement.sites
    assert placement.named("s3/a") is None
