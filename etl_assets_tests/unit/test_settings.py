"""The platform file: a wrong setting stops at load, with its name, the value found and what is allowed."""

from __future__ import annotations

import datetime as dt
import traceback
from pathlib import Path

import pytest
import yaml

from etl_assets.errors import SettingsError
from etl_assets.settings import Settings, load_settings


@pytest.fixture
def load(tmp_path: Path):
    def load(text: str | None = None, **variables: str) -> Settings:
        if text is not None:
            (tmp_path / "platform.yaml").write_text(text, encoding="utf-8")
        return load_settings({"ETL_ASSETS_HOME": str(tmp_path), **variables})

    return load


def test_without_a_file_every_setting_has_its_default(load, tmp_path):
    settings = load()
    assert settings.landing_path == tmp_path / "landing"
    assert settings.placement().domains[0].root == tmp_path / "data"
    assert settings.reference_file("customers") == tmp_path / "landing" / "_reference" / "customers.csv"
    assert settings.dagster_home == tmp_path / "dagster"
    assert settings.spark.driver_memory == "2g"


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", "{}"])
def test_an_empty_file_is_no_file(load, text):
    assert load(text) == load()


def test_the_file_is_taken(load):
    settings = load(
        yaml.safe_dump(
            {
                "start_date": "2025-03-01",
                "landing": {"path": "/in"},
                "domains": [{"name": "aws/eu-1/a", "root": "/d"}],
            }
        )
    )
    assert settings.start_date == dt.date(2025, 3, 1)
    assert settings.landing_path == Path("/in")
    assert settings.placement().domains[0].name == "aws/eu-1/a"


@pytest.mark.parametrize(
    ("content", "field", "allowed"),
    [
        ({"landing": {"settle_seconds": -1}}, "landing.settle_seconds", "at least 0, such as `2.0`"),
        ({"landing": {"settle_second": 1}}, "landing.settle_second", "did you mean `settle_seconds`?"),
        ({"start": "2026-01-01"}, "start", "fields: start_date"),
        ({"spark": {"master": "locale"}}, "spark.master", "`local[*]`"),
        ({"spark": {"master": "Local"}}, "spark.master", "`local[4]`"),
        ({"spark": {"master": "local[x]"}}, "spark.master", "`local[*]`"),
        ({"spark": {"driver_memory": "0g"}}, "spark.driver_memory", "such as `2g`"),
        ({"spark": {"driver_memory": "2GB"}}, "spark.driver_memory", "such as `2g` or `512m`"),
        (
            {"spark": {"config": {"spark.sql.shuffle.partitions": 4}}},
            "spark.config.spark.sql.shuffle.partitions",
            'in quotes: `spark.sql.shuffle.partitions: "4"`',
        ),
        ({"spark": {"start": "fast"}}, "spark.start", "one of 'auto', 'quick' or 'full'"),
        ({"start_date": "01.02.2026"}, "start_date", "YYYY-MM-DD, such as `2026-01-01`"),
        ({"owners": ["Bob"]}, "owners.0", "such as `team:data-platform`"),
        ({"owners": ["team:"]}, "owners.0", "such as `team:data-platform`"),
        ({"domains": [{"name": "a", "root": "/proc/nope"}]}, "domains.0.root", "such as `data`"),
        ({"domains": [{"name": "a", "root": "/sys"}]}, "domains.0.root", "such as `data`"),
        ({"landing": {"path": "/dev/fd"}}, "landing.path", "such as `landing`"),
        ({"spark": {"config": {"spark.sql.session.timeZone": "X"}}}, "spark.config", ""),
        ({"spark": {"config": {"spark.sql.ansi.enabled": "false"}}}, "spark.config", ""),
        ({"spark": {"config": {"spark.driver.memory": "64g"}}}, "spark.config", ""),
        ({"spark": {"config": {"delta.x": "1"}}}, "spark.config", ""),
        ({"runs": {"max_days_per_run": 0}}, "runs.max_days_per_run", "at least 1, such as `31`"),
        ({"domains": []}, "domains", ""),
        ({"domains": [{"name": "A B", "root": "x"}]}, "domains.0.name", "such as `aws/eu-1/a`"),
        ({"domains": [{"name": "a", "root": "x", "rot": 1}]}, "domains.0.rot", "did you mean `root`?"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else None,
)
def test_a_wrong_setting_is_named_with_what_is_allowed(load, content, field, allowed):
    with pytest.raises(SettingsError) as refused:
        load(yaml.safe_dump(content))
    assert refused.value.field == field
    assert field in refused.value.message
    assert allowed in refused.value.fix


def test_a_wrong_value_is_shown(load):
    with pytest.raises(SettingsError, match=r"spark\.driver_memory = '0g' is wrong") as refused:
        load("spark: {driver_memory: 0g}")
    assert refused.value.value == "'0g'"


ELSEWHERE = {"spark": {"config": {"spark.ssl.trustStore": "not-to-be-shown"}}}


@pytest.mark.parametrize(
    "content",
    [
        {**ELSEWHERE, "domains": [{"name": "a", "root": "a"}, {"name": "a", "root": "b"}]},
        {**ELSEWHERE, "placement_policy": {"ingest": ["mars"]}},
        {**ELSEWHERE, "unknown": "not-to-be-shown"},
        {"spark": {"confg": ELSEWHERE["spark"]["config"]}},
        {"spark": {"spark.ssl.trustStore": "not-to-be-shown"}},
        {"spark": ["not-to-be-shown"]},
        {"spark": {"config": {"spark.x": ["not-to-be-shown"]}}},
        {"spark": {"config": {"spark.x": 5, "spark.y": "not-to-be-shown"}}},
        {"spark": {"config": {"x": "not-to-be-shown"}}},
        {"spark": {"config": {"spark.hadoop.fs.s3a.secret.key": "not-to-be-shown"}}},
        {"spark": {"config": {"spark.hadoop.fs.s3a.bucket.provider-a.secret.key": "not-to-be-shown"}}},
        {"spark": {"config": {"spark.hadoop.fs.azure.sas.fixed.token.x": "not-to-be-shown"}}},
        {
            "spark": {
                "config": {
                    "spark.hadoop.fs.azure.sas.orders.account.blob.core.windows.net": "not-to-be-shown"
                }
            }
        },
        {"spark": {"config": {"spark.hadoop.fs.s3a.encryption.key": "not-to-be-shown"}}},
        {"spark": "not-to-be-shown"},
        {"spark": {"config": "not-to-be-shown"}},
        {"domains": "not-to-be-shown"},
        {"spark": {"config": {"spark.ssl.keyPassword": "not-to-be-shown"}}},
        {"spark": {"config": {"spark.hadoop.fs.azure.account.key.a": "not-to-be-shown"}}},
        {"spark": {"config": {"spark.hadoop.fs.s3a.secret.key": "${env:not-to-be-shown}"}}},
        {"spark": {"config": {"spark.hadoop.fs.s3a.access.key": "not-to-be-shown${env.X}"}}},
        {"spark": {"master": "sc://host:15002/;use_ssl=true;token=not-to-be-shown"}},
        {"spark": {"master": "host:15002/;token=not-to-be-shown"}},
        {"domains": [{"name": "a", "root": "s3://key:not-to-be-shown@bucket/p"}]},
        {"domains": [{"name": "a", "root": "https://b.example/c?sig=not-to-be-shown"}]},
        'spark: {config: {spark.x: "not-to-be-shown}}',
        "spark:\n  config:\n    spark.x: *not-to-be-shown",
    ],
    ids=str,
)
def test_no_secret_is_shown_of_a_file_that_is_refused(load, content):
    with pytest.raises(SettingsError) as refused:
        load(content if isinstance(content, str) else yaml.safe_dump(content))
    shown = [*traceback.format_exception(refused.value), str(refused.value.fields)]
    assert "not-to-be-shown" not in "".join(shown)


def test_a_secret_of_spark_is_an_environment_variable(load):
    secrets = {
        "spark.hadoop.fs.s3a.secret.key": "${env.S3_SECRET}",
        "spark.authenticate.secret": "${env:SPARK_SECRET}",
        "spark.kubernetes.authenticate.oauthTokenFile": "/run/token",
        "spark.kubernetes.executor.secrets.store": "/run/secrets",
        "spark.kubernetes.kerberos.tokenSecret.name": "delegation",
        "spark.kubernetes.kerberos.tokenSecret.itemKey": "token",
        "spark.hadoop.hadoop.security.credential.provider.path": "jceks://file/secrets",
        "spark.hadoop.fs.azure.sas.token.provider.type": "com.example.Provider",
    }
    assert load(yaml.safe_dump({"spark": {"config": secrets}})).spark.config == secrets
    with pytest.raises(SettingsError, match=r"spark\.authenticate\.secret .*`\$\{env:NAME\}`"):
        load("spark: {config: {spark.authenticate.secret: x}}")
    with pytest.raises(SettingsError, match="SPARK_CONNECT_AUTHENTICATE_TOKEN"):
        load("spark: {master: 'sc://host:15002/;token=x'}")


def test_a_file_that_is_no_yaml_is_refused_with_the_place(load):
    with pytest.raises(SettingsError, match="line 2, column 5"):
        load("a: 1\nb: c: d")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("runs:\n\tmax_retries: 1", "a tab"),
        ("a: 1\nb: c: d", "a second `: `"),
        ("runs:\n    max_retries: 1\n  lock_wait_seconds: 2", "indented"),
    ],
)
def test_the_usual_mistakes_in_yaml_are_named(load, text, reason):
    with pytest.raises(SettingsError, match=r"line [23]") as refused:
        load(text)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("text", "field", "lines"),
    [
        ("runs: {max_retries: 9}\nstart_date: 2026-02-01\nruns: {max_days_per_run: 2}", "runs", "1 and 3"),
        ("runs:\n  max_retries: 9\n  max_retries: 2", "max_retries", "2 and 3"),
    ],
)
def test_a_field_that_stands_twice_is_refused_instead_of_dropped(load, text, field, lines):
    with pytest.raises(SettingsError, match=f"`{field}` stands twice, in lines {lines}") as refused:
        load(text)
    assert refused.value.field == field


def test_a_first_day_in_the_future_is_refused_as_there_would_be_no_partition(load):
    with pytest.raises(SettingsError, match=r"start_date = 2999-01-31 .* future") as refused:
        load("start_date: 2999-01-31")
    assert (refused.value.field, "such as `2026-01-01`" in refused.value.fix) == ("start_date", True)


def test_of_a_value_in_quotes_that_is_a_secret_only_the_name_is_shown(load):
    with pytest.raises(SettingsError, match=r"spark\.ssl\.keyPassword") as refused:
        load("spark: {config: {spark.ssl.keyPassword: 4711}}")
    assert "4711" not in str(refused.value)


def test_owners_are_what_dagster_takes(load):
    assert load("owners: [a.b+c@example.org, 'team:data platform']").owners
    import dagster as dg

    dg.AssetSpec("x", owners=load("owners: [a.b+c@example.org, 'team:data-platform']").owners)


def test_an_unknown_domain_in_a_policy_is_named_with_its_field(load):
    with pytest.raises(
        SettingsError, match=r": placement_policy\.ingest: mars is no domain; there are local"
    ):
        load("placement_policy: {ingest: [mars]}")


@pytest.mark.parametrize("root", ["data/[a-c]", "{a,b}", "what?", "every*", "a%20b", "a\\b"])
def test_a_root_that_spark_would_not_take_literally_is_refused(load, root):
    with pytest.raises(SettingsError, match="choose another folder"):
        load(yaml.safe_dump({"domains": [{"name": "a", "root": root}]}))


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text", "7"])
def test_a_file_that_is_no_mapping_is_refused(load, text):
    with pytest.raises(SettingsError, match="holds no mapping of fields"):
        load(text)


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "\tx: 1"])
def test_a_file_that_is_no_yaml_is_refused(load, text):
    with pytest.raises(SettingsError, match="cannot be read"):
        load(text)


def test_the_home_folder_is_not_set_in_the_file(load):
    with pytest.raises(SettingsError, match="`home` is not a field") as refused:
        load("home: /x")
    assert "ETL_ASSETS_HOME" in refused.value.fix


def test_a_file_that_was_named_must_exist(load, tmp_path):
    with pytest.raises(SettingsError, match="does not exist"):
        load(ETL_ASSETS_PLATFORM_FILE=str(tmp_path / "absent.yaml"))


def test_the_environment_overrides_the_master_and_leaves_the_rest(load):
    settings = load("spark: {master: 'local[4]', driver_memory: 1g}", ETL_ASSETS_SPARK_MASTER="local[1]")
    assert (settings.spark.master, settings.spark.driver_memory) == ("local[1]", "1g")


def test_a_wrong_master_in_the_environment_is_refused_like_one_in_the_file(load):
    with pytest.raises(SettingsError, match=r"spark\.master"):
        load(ETL_ASSETS_SPARK_MASTER="nowhere")


def test_the_environment_does_not_hide_a_section_that_is_wrong(load):
    with pytest.raises(SettingsError, match="spark"):
        load("spark: 5", ETL_ASSETS_SPARK_MASTER="local[1]")


def test_settings_survive_their_json(load):
    settings = load()
    assert Settings.model_validate_json(settings.model_dump_json()) == settings
