"""Metadata of the failure domains for Dagster: tables for people, and metrics that it plots over time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from etl_assets.delta.replicated.replication_status import ReplicationStatus
from etl_assets.markdown_table import markdown_table
from etl_assets.observability.domain_changes import Change, ChangeKind
from etl_assets.observability.domain_states import DomainState, one_loss
from etl_assets.replicas.reconcile import ReconcileResult
from etl_assets.sensors.telling import SAFE


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainsReport:
    """Findings of one tick.

    Attributes:
        states: The domains.
        tables: The mirrored tables.
        kept: Results of reconciling the replicas.
        changed: Changes of the tables since the last tick.
        seconds_behind: For how many seconds each replica has been behind, by table and domain.
        rows_per_minute: Rows acknowledged per minute since the last observation, by table; empty if unknown.
    """

    states: Sequence[DomainState]
    tables: Mapping[str, ReplicationStatus]
    kept: Sequence[ReconcileResult] = ()
    changed: Sequence[Change] = ()
    seconds_behind: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rows_per_minute: Mapping[str, int] = field(default_factory=dict)

    @property
    def danger(self) -> str | None:
        """What the loss of one domain would lose now; None if nothing."""
        return one_loss(self.states)

    def fingerprint(self) -> str:
        """Return a hash of everything that deserves an observation when it changes; metrics do not."""
        standings = [
            (name, each.leader, each.epoch, each.generation, each.one_copy, sorted(each.roles.items()))
            for name, each in self.tables.items()
        ]
        seen = [each.as_json() for each in self.states], list(map(str, self.kept)), standings
        return hashlib.sha256(repr(seen).encode()).hexdigest()

    def seconds(self, domain: str) -> float:
        """Return the longest time that any replica of a domain has been behind."""
        return max((each.get(domain, 0.0) for each in self.seconds_behind.values()), default=0.0)

    def metadata(self) -> dict[str, dg.MetadataValue]:
        """Return all metadata for an observation of the asset."""
        return {
            "one_loss": dg.MetadataValue.text(self.danger or SAFE),
            "safe_from_one_loss": dg.MetadataValue.bool(self.danger is None),
            "domains": dg.MetadataValue.md(self._domains()),
            "tables": dg.MetadataValue.md(self._tables()),
            "happened": dg.MetadataValue.md(self._happened()),
            **{name: dg.MetadataValue.int(figure) for name, figure in self.figures().items()},
        }

    def figures(self) -> dict[str, int]:
        """Return the metrics; Dagster plots each."""
        lags = [lag for state in self.states for lag in state.behind.values()]
        figures = {
            "usable_domains": sum(state.problem is None for state in self.states),
            "versions_behind": sum(lag or 0 for lag in lags),
            "seconds_behind": int(max((self.seconds(state.name) for state in self.states), default=0.0)),
            "replicas_not_answering": sum(lag is None for lag in lags),
            "relocations": self._count(ChangeKind.RELOCATED),
            "rebinds": self._count(ChangeKind.REBOUND),
            "repairs": sum(len((*each.rejoined, *each.joined, *each.repaired)) for each in self.kept),
        }
        for state in self.states:
            figures[f"versions_behind/{state.name}"] = sum(lag or 0 for lag in state.behind.values())
            figures[f"seconds_behind/{state.name}"] = int(self.seconds(state.name))
        return figures | {f"rows_per_minute/{table}": rows for table, rows in self.rows_per_minute.items()}

    def _count(self, kind: ChangeKind) -> int:
        return sum(change.kind is kind for change in self.changed)

    def _happened(self) -> str:
        return "\n".join(f"- {each}" for each in (*self.changed, *self.kept)) or "nothing"

    def _domains(self) -> str:
        rows = [
            [state.name, state.role, state.told, _leads(state), self._behind(state)] for state in self.states
        ]
        return "\n".join(markdown_table(["domain", "role", "state", "leads", "behind"], rows))

    def _tables(self) -> str:
        rows = []
        for name, at in self.tables.items():
            if at.problem is not None:
                rows.append([name, "", "", "", "", at.problem])
                continue
            replicas = ", ".join(f"{domain} {self._replica(name, domain)}" for domain in at.roles)
            copies = "one copy: " if at.one_copy else ""
            rows.append(
                [
                    name,
                    at.leader or "-",
                    str(at.epoch),
                    str(at.generation),
                    str(at.version),
                    copies + replicas,
                ]
            )
        header = ["table", "leader", "epoch", "generation", "acknowledged", "replicas"]
        return "\n".join(markdown_table(header, rows))

    def _replica(self, table: str, domain: str) -> str:
        at = self.tables[table]
        role = "" if at.roles[domain].value == "voter" else f"({at.roles[domain]}) "
        return role + _lag(at.behind[domain], self.seconds_behind.get(table, {}).get(domain, 0.0))

    def _behind(self, state: DomainState) -> str:
        if state.behind and all(lag is None for lag in state.behind.values()):
            return f"does not answer, for {self.seconds(state.name):.0f} s"
        lags = {name: lag for name, lag in state.behind.items() if lag != 0}
        seconds = {name: self.seconds_behind.get(name, {}).get(state.name, 0.0) for name in lags}
        return ", ".join(f"{name} {_lag(lag, seconds[name])}" for name, lag in lags.items()) or "nothing"


def _leads(state: DomainState) -> str:
    if state.leads and len(state.leads) == len(state.behind):
        return "every table"
    return ", ".join(state.leads) or "-"


def _lag(versions: int | None, seconds: float) -> str:
    if versions == 0:
        return "up to date"
    what = "does not answer" if versions is None else f"{versions:,} behind"
    return f"{what}, for {seconds:.0f} s"
