"""What an error means for a run, by the one table."""

from __future__ import annotations

import builtins
import errno
import inspect
from types import ModuleType

import delta.connect.exceptions
import delta.exceptions.captured
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from py4j import protocol
from pyspark import SparkContext
from pyspark.errors.exceptions import captured, connect

from etl_assets import errors
from etl_assets.error_policy import RULES, Decision, advice, decide, disk_is_full, spark_went_away, told


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
        (ours(errors.RowsRefused), Decision.SPLIT),
        (ours(errors.PartitionMismatch), Decision.STOP),
        (ours(errors.CommitUnverified), Decision.STOP),
        (ours(errors.CommitOverwritten), Decision.STOP),
        (ours(errors.FeatureUnsupported), Decision.STOP),
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


def errors_of(module: ModuleType) -> list[type[BaseException]]:
    return [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == module.__name__
    ]


WRONG_QUERY = {"AnalysisException", "ParseException", "InvalidPlanInput"}


@pytest.fixture
def classic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of Spark in this process are made only where it runs."""
    monkeypatch.setattr(SparkContext, "_jvm", object())
    monkeypatch.setattr(SparkContext, "_gateway", object())


@pytest.mark.parametrize("kind", errors_of(captured), ids=lambda kind: kind.__name__)
@pytest.mark.usefixtures("classic")
def test_what_spark_in_this_process_reports_is_about_the_query_or_the_data(kind):
    expected = Decision.STOP if kind.__name__ in WRONG_QUERY else Decision.SPLIT
    assert decide(kind("it went wrong", "at nowhere")) is expected


@pytest.mark.parametrize(
    "kind",
    [kind for kind in errors_of(connect) if kind is not connect.SparkConnectGrpcException],
    ids=lambda kind: kind.__name__,
)
def test_what_a_connect_server_reports_means_the_same(kind):
    expected = Decision.STOP if kind.__name__ in WRONG_QUERY else Decision.SPLIT
    assert decide(kind("it went wrong")) is expected
    assert not spark_went_away(kind("it went wrong"))


def reported(*classes: str, condition: str | None = None) -> Exception:
    """What the client makes of an error of the Connect server, of these Java classes."""
    names = ", ".join(f'"{name}"' for name in classes)
    told = {"classes": f"[{names}]"} | ({} if condition is None else {"errorClass": condition})
    return connect.convert_exception(ErrorInfo(reason=classes[0], metadata=told), "it went wrong", None)


@pytest.mark.parametrize(
    "error",
    [
        connect.SparkConnectGrpcException("failed to connect to all addresses"),
        connect.SparkConnectException(errorClass="NO_ACTIVE_SESSION", messageParameters={}),
        *(
            reported("org.apache.spark.SparkSQLException", condition=f"INVALID_HANDLE.{what}")
            for what in ("SESSION_CHANGED", "SESSION_CLOSED", "SESSION_NOT_FOUND", "OPERATION_ABANDONED")
        ),
    ],
    ids=lambda error: error.getCondition() or type(error).__name__,
)
def test_a_connect_server_that_went_away_is_tried_again_in_another_session(error):
    assert decide(error) is Decision.RETRY
    assert spark_went_away(error)


@pytest.mark.parametrize(
    "kind",
    [*errors_of(delta.exceptions.captured), *errors_of(delta.connect.exceptions)],
    ids=lambda kind: f"{kind.__module__.split('.')[1]} {kind.__name__}",
)
@pytest.mark.usefixtures("classic")
def test_a_commit_in_between_is_tried_again_in_the_same_session(kind):
    error = (
        reported(f"io.delta.exceptions.{kind.__name__}", "java.util.ConcurrentModificationException")
        if issubclass(kind, connect.SparkConnectException)
        else kind("it went wrong", "at nowhere")
    )
    assert type(error) is kind
    assert decide(error) is Decision.RETRY
    assert not spark_went_away(error)


def test_a_full_disk_below_what_a_connect_server_reports_stops_the_run():
    below = "org.apache.spark.SparkException\nCaused by: java.io.IOException: No space left on device"
    error = connect.SparkException("Job aborted.", server_stacktrace=below)
    assert decide(error) is Decision.STOP
    assert "free space" in advice(error)


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


def test_every_name_in_the_table_exists():
    known = {
        name for module in (errors, builtins, protocol, connect, delta.exceptions) for name in vars(module)
    }
    named = {name for rule in RULES for name in rule.names}
    assert named <= known


class OfJava(Exception):
    """As py4j words an error: what was called, and the whole stack of it and of its causes."""

    def __init__(self, root: str) -> None:
        frames = "\n".join(
            f"\tat org.apache.spark.Some.method{number}(Some.scala:{number})" for number in range(80)
        )
        super().__init__(
            "An error occurred while calling o62.sql.\n"
            f": org.apache.spark.SparkException: Job aborted due to stage failure\n{frames}\n\t... 1 more\n"
            f"Caused by: java.io.IOException: {root}\n{frames}\n\t... 92 more\n"
        )


def test_an_error_is_told_without_the_stack_of_java():
    text = told(OfJava("the file is not a Parquet file"))
    assert "\tat " not in text
    assert "... 92 more" not in text
    assert "Job aborted due to stage failure" in text
    assert "Caused by: java.io.IOException: the file is not a Parquet file" in text
    assert len(text.splitlines()) < 8


def test_a_full_disk_is_told_in_two_lines_with_its_remedy():
    text = told(OfJava("No space left on device"))
    assert text.splitlines() == [
        "OfJava: java.io.IOException: No space left on device",
        "  fix: free space on the disk of the tables; nothing acknowledged was lost, run again afterwards",
    ]
