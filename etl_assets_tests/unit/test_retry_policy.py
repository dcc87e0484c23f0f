"""What an error means for a run, by the one table."""

from __future__ import annotations

import errno
import inspect

import pytest

from etl_assets import errors
from etl_assets.retry_policy import RULES, Decision, advice, decide, disk_is_full


def an(name: str, *bases: type[BaseException]) -> BaseException:
    return type(name, bases or (Exception,), {})("it went wrong")


def ours(kind: type[errors.EtlAssetsError]) -> errors.EtlAssetsError:
    return kind("it went wrong", fix="mend it")


@pytest.mark.parametrize(
    ("error", "decision"),
    [
        (ours(errors.CommitConflict), Decision.RETRY),
        (ours(errors.TableBusy), Decision.RETRY),
        (ours(errors.WriterLeftBehind), Decision.STOP),
        (ours(errors.DomainUnavailable), Decision.RETRY),
        (ours(errors.SourceChanged), Decision.SPLIT),
        (ours(errors.SourceUnreadable), Decision.SPLIT),
        (ours(errors.DaysFailed), Decision.SPLIT),
        (ours(errors.SettingsError), Decision.STOP),
        (ours(errors.SchemaMismatch), Decision.STOP),
        (ours(errors.CommitUnverified), Decision.STOP),
        (an("ConcurrentAppendException"), Decision.RETRY),
        (an("Py4JNetworkError"), Decision.RETRY),
        (an("AnalysisException", type("PySparkException", (Exception,), {})), Decision.STOP),
        (an("SparkRuntimeException", type("PySparkException", (Exception,), {})), Decision.SPLIT),
        (an("Py4JJavaError"), Decision.SPLIT),
        (ConnectionResetError(), Decision.RETRY),
        (TimeoutError(), Decision.RETRY),
        (OSError(errno.ENOSPC, "full"), Decision.STOP),
        (OSError(errno.EROFS, "read-only"), Decision.STOP),
        (an("SomethingNobodyThoughtOf"), Decision.STOP),
        (KeyError("x"), Decision.STOP),
        (KeyboardInterrupt(), Decision.STOP),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value.value,
)
def test_an_error_is_repeated_split_or_final(error, decision):
    assert decide(error) is decision


def test_a_full_disk_in_sparks_words_stops_the_run():
    error = type("Py4JJavaError", (Exception,), {})("java.io.IOException: No space left on device")
    assert disk_is_full(error)
    assert decide(error) is Decision.STOP
    assert "free space" in advice(error)


def test_missing_permission_is_not_called_a_full_disk():
    assert "free space" not in advice(PermissionError(errno.EACCES, "Permission denied"))
    assert decide(PermissionError(errno.EACCES, "Permission denied")) is Decision.STOP


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.EtlAssetsError)
    ],
    ids=lambda kind: kind.__name__,
)
def test_every_named_error_gives_its_own_advice(kind):
    assert advice(ours(kind)) == "mend it"


def test_every_rule_says_why_and_no_name_stands_in_two_rules():
    names = [name for rule in RULES for name in rule.names]
    assert len(names) == len(set(names))
    assert all(rule.why for rule in RULES)


def test_every_name_of_delta_and_of_ours_in_the_table_exists():
    import delta.exceptions

    known = {*vars(errors), *vars(delta.exceptions), "ConnectionError", "TimeoutError"}
    named = {name for rule in RULES for name in rule.names}
    foreign = {
        "Py4JNetworkError",
        "Py4JJavaError",
        "SparkConnectGrpcException",
        "AnalysisException",
        "ParseException",
        "PySparkException",
    }
    assert named - foreign <= known
