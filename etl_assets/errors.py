"""The error tree: every situation the platform names.

Belongs here: exception classes, named for what happened, carrying the parts as fields. Does not belong here: whether an
error is retried (`error_policy.py`) or how it is shown.

```
EtlAssetsError
├── SettingsError            the platform file or an environment variable is wrong
├── NoInstallation           the home folder holds no installation
├── RuntimeMissing           Java, a jar or another part of the machine is missing
├── ContractError            a table contract or an asset's upsert spec contradicts itself
├── SchemaMismatch           a frame does not have the columns its contract declares
├── NullRefused              a row lacks a value that its table must have
├── RowsRefused              rows that an asset returned cannot be stored under its upsert spec
├── PartitionMismatch        rows that an asset returned are of no partition of its run
├── DomainUnavailable        the stage may not run in that failure domain
├── StorageFailed            the file system under a root refuses: full, read-only, not mounted
├── InputError               something outside gave input that cannot be used
│   ├── SourceUnreadable     a landing file cannot be read (permission, broken compression, gone)
│   ├── SourceChanged        a landing file changed between planning and reading
│   ├── LandingFileDiffers   a landing file of that name is there with other content
│   ├── QueryRefused         a SQL statement is not a query, or cannot be run as it is
│   └── DaysFailed           some days of a run failed; the others are committed
├── LandingNotWritten        a landing file cannot be written
├── TableBusy                another process holds the table's writer lock
├── WriterLeftBehind         a dead run may still be writing the table in the Spark that this run is at
├── CommitConflict           the table moved past the planned base version
├── CommitUnverified         a commit was written but is not what was planned
├── CommitOverwritten        an acknowledged commit is gone: another program wrote over it
├── FeatureUnsupported       a table uses a feature of Delta that this way to write it does not know
├── FilesGone                data files of a version are no longer there
├── EffectRefused            an effect of a sink may not be done, or not be completed
│   ├── EffectKeyReused      its key stands for another content
│   ├── EffectInProgress     another owner, which may be alive, is at it
│   └── EffectTakenOver      it was reserved by another owner, or under another epoch, since
├── MirrorError              a mirrored table cannot go on as it is
│   ├── QuorumUnavailable    too few voters answered to acknowledge a commit, to lead or to read anew
│   │   └── Leaderless       enough answered, and a change of leader was begun among them and not ended
│   ├── Fenced               another process or domain leads the table under a higher epoch
│   ├── StaleGeneration      a reader's replica has moved or was rebuilt
│   ├── ReplicaCorrupt       a register or a replica is not what the voters agreed on
│   └── MembershipRefused    a change of the replicas would give up what they protect
├── Unanswered               a store's answer did not arrive: done or not done is unknown
├── RunFailed                a run that a command started has failed
├── FollowerRunning          another process follows already
├── DevRunning               another process runs the UI of this home folder already
├── AddressUnusable          a server cannot listen on an address
├── EngineLost               the Spark engine of this process is gone
└── NotFound                 an event, dead letter or table that does not exist
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class EtlAssetsError(Exception):
    """A named situation.

    Args:
        message: What happened, to which table, file, partition or domain.
        fix: What to do next.
        fields: The parts of the situation, readable as attributes of the same names.
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
    """A setting is wrong; carries `field`, `value` and `allowed` where they are known."""


class NoInstallation(EtlAssetsError):
    """There is nothing of an installation in the home folder; carries `home`."""


class RuntimeMissing(EtlAssetsError):
    """A part of the machine the platform needs is not there."""


class ContractError(EtlAssetsError):
    """A declaration contradicts itself."""


class SchemaMismatch(EtlAssetsError):
    """A frame's columns are not those of its contract."""


class NullRefused(EtlAssetsError):
    """There is no value in a column that must have one."""


class RowsRefused(EtlAssetsError):
    """Rows have no key, or one key and no order; none of the commit were stored. Carries `table` and `column`."""


class PartitionMismatch(EtlAssetsError):
    """Rows are of no partition of the run; none were stored. Carries `table`, `column` and `value`."""


class DomainUnavailable(EtlAssetsError):
    """The stage may not run in that failure domain, or the domain is not healthy."""


class StorageFailed(EtlAssetsError):
    """The file system under a root refused an operation; carries `table`, `domain` and `file`. Nothing is acknowledged by it."""


class InputError(EtlAssetsError):
    """Input from outside cannot be used as it is."""


class SourceUnreadable(InputError):
    """A landing file cannot be read; carries `file`."""


class SourceChanged(InputError):
    """A landing file is not what the batch was planned with; carries `file`."""


class DaysFailed(InputError):
    """Some days of a run failed, the others are committed; carries `days`: day to error text."""

    days: Mapping[str, str]


class TableBusy(EtlAssetsError):
    """Another process holds the table's writer lock for longer than this one may wait."""


class WriterLeftBehind(EtlAssetsError):
    """A run that is dead may still be writing the table in the Spark that this run is at; nothing was written."""


class CommitConflict(EtlAssetsError):
    """Another commit came between planning and committing; nothing was written."""


class CommitUnverified(EtlAssetsError):
    """A commit was written, and what it says of itself is not what was planned."""


class CommitOverwritten(EtlAssetsError):
    """An acknowledged commit was replaced by another program's; carries `table`, `version` and `kept`, its entry."""


class FeatureUnsupported(EtlAssetsError):
    """A table uses features of Delta that what was asked for does not know; carries `table`, `features`. Nothing was written."""


class FilesGone(EtlAssetsError):
    """A version, an older one mostly, cannot be had any more: its files or its log are gone; carries `table` and `missing`."""


class EffectRefused(EtlAssetsError):
    """An effect may not be done or not be completed; carries `sink` and `key`."""


class EffectKeyReused(EffectRefused):
    """A key stands for another content. Nothing was done."""


class EffectInProgress(EffectRefused):
    """Another owner, which may be alive, has reserved the effect."""


class EffectTakenOver(EffectRefused):
    """The reservation is not this owner's any more, so that what it did does not count."""


class MirrorError(EtlAssetsError):
    """A mirrored table cannot go on as it is; carries `table`."""


class QuorumUnavailable(MirrorError):
    """Too few voters answered; carries `missing`, the domains that did not, with what they said."""

    missing: Mapping[str, str]


class Leaderless(QuorumUnavailable):
    """What is newest cannot be told until somebody leads: a change of leader was begun and is under way, or was left.

    Carries `claimant`, the domain that claimed last, and `leader`, the one that led before.
    """

    claimant: str
    leader: str


class Fenced(MirrorError):
    """A higher epoch was promised; carries `epoch`, the one held, and `by`, the higher one where it is known."""


class StaleGeneration(MirrorError):
    """What a reader is bound to has changed; carries `held` and `current`."""


class ReplicaCorrupt(MirrorError):
    """A register or a replica is not what was agreed on; carries `domain`."""


class MembershipRefused(MirrorError):
    """A change of the replicas was refused before anything was written."""


class Unanswered(EtlAssetsError):
    """A store's answer did not arrive. Neither a yes nor a no: read again before deciding. Carries `store` and `key`."""


class NotFound(EtlAssetsError):
    """Something was asked for by name and is not there."""


class LandingNotWritten(EtlAssetsError):
    """A landing file cannot be written (permission, full disk); nothing of it was landed. Carries `file`."""


class LandingFileDiffers(InputError):
    """A landing file of that name is there with other content; it was left as it is. Carries `file`."""


class QueryRefused(InputError):
    """A SQL statement is not a query, has an error, or names a column that is not there. Carries `column` in that case."""


class RunFailed(EtlAssetsError):
    """Runs that a command started have failed; carries `run_id`, the first one's, and `materializations`, Dagster's, of all
    of them, those that succeeded included.

    Days that none of them names are done, unless the last one failed for another reason than its days.
    """

    run_id: str
    materializations: Sequence[Any]


class FollowerRunning(EtlAssetsError):
    """Another process follows the landing folder already; carries `holder`."""


class DevRunning(EtlAssetsError):
    """Another process runs the UI and the daemons of this home folder already; carries `home`."""


class AddressUnusable(EtlAssetsError):
    """A server cannot listen on an address: it is in use, or is not this machine's; carries `host` and `port`."""


class EngineLost(EtlAssetsError):
    """The Spark engine of this process is gone, and what it was asked for with it; carries `driver`."""
