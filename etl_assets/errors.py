"""The error tree: every situation the platform names.

Belongs here: exception classes, named for what happened, carrying the parts as fields. Does not belong here:
whether an error is retried (`error_policy.py`) or how it is shown.

```
EtlAssetsError
├── SettingsError            the platform file or an environment variable is wrong
├── NoInstallation           the home folder holds no installation
├── RuntimeMissing           Java, a jar or another part of the machine is missing
├── ContractError            a table contract or an asset's upsert spec contradicts itself
├── PipelinesBroken          declared pipelines cannot be used, where that must not be passed over
├── SchemaMismatch           a frame does not have the columns its contract declares
├── NullRefused              a row lacks a value that its table must have
├── RowsRefused              rows that an asset returned cannot be stored under its upsert spec
├── ExpectationFailed        rows do not meet an expectation of their pipeline that fails the run
├── PartitionMismatch        rows that an asset returned belong to no partition of its run
├── DomainUnavailable        the stage may not run in that failure domain
├── StorageFailed            the file system under a root refuses: full, read-only, not mounted
├── InputError               input from outside cannot be used
│   ├── SourceUnreadable     a file of a source cannot be read (permission, broken compression, missing)
│   ├── SourceChanged        a file of a source changed between planning and reading
│   ├── LandingFileDiffers   a landing file of that name exists with other content
│   ├── QueryRefused         a SQL statement is not a query, or cannot be run as it is
│   └── DaysFailed           some days of a run failed; the others are committed
├── SourceUnavailable        a source outside the platform does not answer now
├── SourceRefused            a source can never be read as declared
│   └── SourceSchemaChanged  its columns changed in a way that the pipeline does not take
├── SourceLost               records between the position and what a source still has are gone
├── MessageMalformed         bytes of a source's protocol do not follow it
├── SinkUnavailable          a target outside the platform does not answer now
├── SinkRefused              a target can never accept what is declared
├── SinkFenced               another writer has moved the target's position
├── LandingNotWritten        a landing file cannot be written
├── TransitionRefused        the state of a pipeline's run control does not allow an action
├── DeclarationRefused       a declaration over REST has problems
├── DeclarationConflict      a pipeline is not as a change of its declaration over REST needs it
├── RequestRefused           a server of the REST API refuses what a command asks of it, or does not answer
├── LeaseLost                a runner no longer holds the lease of the run that it carries
├── ControlStoreUnavailable  the database with the run control of pipelines does not answer now
├── ControlStoreUnusable     the database with the run control refuses, or is of a newer release
├── TableBusy                another process holds the table's writer lock
├── ConnectionBusy           as many steps as may use a connection use it already
├── WriterLeftBehind         a dead run may still be writing the table in the Spark that this run uses
├── CommitConflict           the table moved past the planned base version
├── CommitUnverified         a commit was written but is not what was planned
├── CommitOverwritten        an acknowledged commit was lost: another program wrote over it
├── FeatureUnsupported       a table uses a feature of Delta that this writer does not support
├── FilesGone                data files or the log of a version no longer exist
├── EffectRefused            an effect of a sink may not be done, or not be completed
│   ├── EffectKeyReused      its key belongs to other content
│   ├── EffectInProgress     another owner, which may be alive, has reserved it
│   └── EffectTakenOver      another owner, or another epoch, has reserved it since
├── MirrorError              a mirrored table cannot continue as it is
│   ├── QuorumUnavailable    too few voters answered to acknowledge a commit, to lead or to read
│   │   └── Leaderless       enough answered, but a change of leader was begun among them and not completed
│   ├── Fenced               another process or domain leads the table under a higher epoch
│   ├── StaleGeneration      a reader's replica has moved or was rebuilt
│   ├── ReplicaCorrupt       a register or a replica is not what the voters agreed on
│   └── MembershipRefused    a change of the replicas would give up what they protect
├── Unanswered               a store did not answer: whether the operation was done is unknown
├── RunFailed                a run that a command started has failed
├── WorkerRunning            a worker runs already
├── DevRunning               another process runs the UI of this home folder already
├── AddressUnusable          a server cannot listen on an address
├── ServerNotStarted         a server that the platform starts by itself ended or did not answer
├── EngineLost               the Spark engine of this process is lost
└── NotFound                 an event, dead letter or table that does not exist
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class EtlAssetsError(Exception):
    """Base class of all errors that the platform names.

    Args:
        message: What happened, to which table, file, partition or domain.
        fix: What to do next.
        fields: Details of the situation, readable as attributes of the same names.
    """

    def __init__(self, message: str, *, fix: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.fields = fields

    def __getattr__(self, name: str) -> object:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}"


class SettingsError(EtlAssetsError):
    """A setting is wrong. Carries `field`, `value` and `allowed` where they are known."""


class NoInstallation(EtlAssetsError):
    """The home folder holds no installation. Carries `home`."""


class RuntimeMissing(EtlAssetsError):
    """A part of the machine that the platform needs is missing."""


class ContractError(EtlAssetsError):
    """A declaration contradicts itself."""


class PipelinesBroken(EtlAssetsError):
    """Declared pipelines have problems, and all were to be valid: fields `pipelines`."""


class SchemaMismatch(EtlAssetsError):
    """A frame's columns are not those of its contract."""


class NullRefused(EtlAssetsError):
    """A row has no value in a column that must have one."""


class RowsRefused(EtlAssetsError):
    """Rows have no key, or share a key without an order. No row of the commit was stored.

    Carries `table` and `column`.
    """


class ExpectationFailed(EtlAssetsError):
    """Rows do not meet an expectation whose violation fails the run. Nothing was written.

    Carries `table`, `rule` and `rows`, their number.
    """


class PartitionMismatch(EtlAssetsError):
    """Rows belong to no partition of the run. No row was stored.

    Carries `table`, `column` and `value`.
    """


class DomainUnavailable(EtlAssetsError):
    """The stage may not run in that failure domain, or the domain is not healthy."""


class StorageFailed(EtlAssetsError):
    """The file system under a root refused an operation. Nothing was acknowledged.

    Carries `table`, `domain` and `file`.
    """


class InputError(EtlAssetsError):
    """Input from outside cannot be used as it is."""


class SourceUnreadable(InputError):
    """A file of a source cannot be read. Carries `file`."""


class SourceChanged(InputError):
    """A file of a source has changed since the batch was planned. Carries `file`."""


class DaysFailed(InputError):
    """Some days of a run failed; the others are committed. Carries `days`: day to error text."""

    days: Mapping[str, str]


class SourceUnavailable(EtlAssetsError):
    """A source outside the platform does not answer now. Carries `source`."""


class SourceRefused(EtlAssetsError):
    """A source can never be read as declared: what is missing has to be changed first. Carries `source`."""


class SourceSchemaChanged(SourceRefused):
    """The columns of a source changed in a way that its pipeline does not take. Carries `source`, `changes`
    and `commit_lsn`, the transaction that begins to have the other columns; 0 for rows that are copied.
    """


class SourceLost(EtlAssetsError):
    """Records between the position and what the source still has are gone. Carries `source` and `lost`."""


class MessageMalformed(EtlAssetsError):
    """Bytes that a source sent are no message of its protocol. Carries `kind` and `offset`."""


class SinkUnavailable(EtlAssetsError):
    """A target outside the platform does not answer now. Whether the call was done is unknown. Carries
    `sink`.
    """


class SinkRefused(EtlAssetsError):
    """A target can never accept what is declared: an operator must change it. Carries `sink`."""


class SinkFenced(EtlAssetsError):
    """Another writer has moved the target's position since it was read. Nothing was written. Carries
    `sink`.
    """


class TableBusy(EtlAssetsError):
    """Another process has held the table's writer lock for longer than this process may wait."""


class ConnectionBusy(EtlAssetsError):
    """As many steps as may use a connection or a target at the same time use it already. Nothing was done."""


class WriterLeftBehind(EtlAssetsError):
    """A dead run may still be writing the table in the Spark that this run uses. Nothing was written."""


class CommitConflict(EtlAssetsError):
    """Another commit came between planning and committing. Nothing was written."""


class CommitUnverified(EtlAssetsError):
    """A commit was written, but its log entry is not what was planned."""


class CommitOverwritten(EtlAssetsError):
    """Another program replaced an acknowledged commit.

    Carries `table`, `version` and `kept`, its log entry.
    """


class FeatureUnsupported(EtlAssetsError):
    """A table uses Delta features that the requested operation does not support. Nothing was written.

    Carries `table` and `features`.
    """


class FilesGone(EtlAssetsError):
    """Files or the log of a version, usually an older one, no longer exist. Carries `table` and `missing`."""


class EffectRefused(EtlAssetsError):
    """An effect may not be done, or may not be completed. Carries `sink` and `key`."""


class EffectKeyReused(EffectRefused):
    """The key belongs to other content. Nothing was done."""


class EffectInProgress(EffectRefused):
    """Another owner, which may be alive, has reserved the effect."""


class EffectTakenOver(EffectRefused):
    """The reservation no longer belongs to this owner, so the owner's effect does not count."""


class MirrorError(EtlAssetsError):
    """A mirrored table cannot continue as it is. Carries `table`."""


class QuorumUnavailable(MirrorError):
    """Too few voters answered. Carries `missing`: the domains that did not answer, each with the reason."""

    missing: Mapping[str, str]


class Leaderless(QuorumUnavailable):
    """A change of leader is under way or was abandoned; until a domain leads, the newest state is unknown."""

    claimant: str
    """The last domain that claimed leadership."""
    leader: str
    """The leader before."""


class Fenced(MirrorError):
    """A higher epoch was promised. Carries `epoch`, the epoch held, and `by`, the higher one if known."""


class StaleGeneration(MirrorError):
    """The replica that a reader is bound to has changed. Carries `held` and `current`."""


class ReplicaCorrupt(MirrorError):
    """A register or a replica differs from what was agreed on. Carries `domain`."""


class MembershipRefused(MirrorError):
    """A change of the replicas was refused before anything was written."""


class Unanswered(EtlAssetsError):
    """A store did not answer, so the operation may or may not be done. Carries `store` and `key`."""


class NotFound(EtlAssetsError):
    """An object requested by name does not exist."""


class TransitionRefused(EtlAssetsError):
    """The state of a pipeline's run control does not allow an action. Nothing changed.

    Carries `pipeline`, `state`, `action`, and `allowed`, the actions of clients that the state allows.
    """


class DeclarationRefused(EtlAssetsError):
    """A declaration or connection over REST has problems. Nothing was stored.

    Carries `pipeline` or `connection`, and `problems`, each with field, value and what is allowed.
    """


class DeclarationConflict(EtlAssetsError):
    """A pipeline or connection is not as a change of it over REST needs it. Nothing was stored.

    Carries `pipeline` or `connection`, `kind` in words that do not change, and `revision` if it has one.
    """


class RequestRefused(EtlAssetsError):
    """A server of the REST API refuses a request. Carries `status`, None without an answer, and `kind`."""


class LeaseLost(EtlAssetsError):
    """A runner no longer holds the lease of its run. Carries `pipeline`, `run_id` and `token`."""


class ControlStoreUnavailable(EtlAssetsError):
    """The database with the run control does not answer now.

    Whether a change was done is unknown; asking again is safe.
    """


class ControlStoreUnusable(EtlAssetsError):
    """The database with the run control refuses what is asked, or a newer release has written it."""


class LandingNotWritten(EtlAssetsError):
    """A landing file cannot be written (permission, full disk). No part of it was landed. Carries `file`."""


class LandingFileDiffers(InputError):
    """A landing file of that name exists with other content, which was left as it is. Carries `file`."""


class QueryRefused(InputError):
    """A SQL statement is not a query, has an error, or names a missing column (carries `column` then)."""


class RunFailed(EtlAssetsError):
    """Runs that a command started have failed.

    Carries `run_id`, the first failed run's, and `materializations`: Dagster's, of all runs, including those
    that succeeded. Days that no run names as failed are done, unless the last run failed for a reason other
    than its days.
    """

    run_id: str
    materializations: Sequence[Any]


class WorkerRunning(EtlAssetsError):
    """A worker runs already on this home folder. Carries `holder`."""


class DevRunning(EtlAssetsError):
    """Another process already runs the UI and the daemons of this home folder. Carries `home`."""


class AddressUnusable(EtlAssetsError):
    """A server cannot listen on an address: it is in use, or not this machine's.

    Carries `host` and `port`.
    """


class ServerNotStarted(EtlAssetsError):
    """A server of `etl_assets.stack` ended or did not answer in time. Carries `server` and `log`."""


class EngineLost(EtlAssetsError):
    """The Spark engine of this process is lost, and its work with it. Carries `driver`."""
