"""The table and the plots of docs/performance.md, made of the kept results: `python -m
benchmarks.performance_page`.

Belongs here: which figures answer which target, and how they are shown. The texts around them are written by
hand, and a test says when table or plots are not those of the results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bar_chart import Bar, bar_chart
from benchmarks.report import RESULTS, Figure

ROOT = Path(__file__).parent.parent
PAGE = Path("docs/performance.md")
TARGETS_PLOT, STEPS_PLOT = (
    Path("docs/images/performance-targets.svg"),
    Path("docs/images/performance-steps.svg"),
)
BEGIN, END = "<!-- made by benchmarks.performance_page: begin -->", "<!-- end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One piece of work with a target: the figures of a case that have one, and whose metric matches."""

    work: str
    case: str
    metrics: str = ".*"


TARGETS = (
    Target(work="1,000,000 events into raw_events", case="bulk", metrics=r"raw_(cpu|wall).*"),
    Target(
        work="... into raw, normalized and warehouse tables", case="bulk", metrics=r"(?!raw_(cpu|wall)).*"
    ),
    Target(work="... by a declared pipeline beside that of orders", case="declared"),
    Target(work="The whole path, three local domains beside one", case="domains"),
    Target(work="10,000 events into a history ten times as long", case="increment", metrics=".*_grown"),
    Target(
        work="... by a step in a warm session, beside dlt's upsert in a fresh process",
        case="increment",
        metrics=".*_dlt",
    ),
    Target(work="An increment after 10,000 files of 1,000 days", case="history", metrics="run_.*"),
    Target(work="10,000 more events in a fresh process beside dlt's", case="loaders", metrics="upsert_.*"),
    Target(work="Nothing to do: the sensor's tick", case="history", metrics="tick_.*"),
    Target(work="Nothing to do: a fresh process beside dlt's", case="loaders", metrics="nothing_.*"),
    Target(work="Cold: from the process to ten rows merged", case="cold"),
    Target(work="Warm: a run of 10,000 events from request to acknowledged", case="warm_run"),
    Target(work="1,000 events a second for ten minutes", case="steady"),
    Target(work="Backfill of 30 days beside one bulk run", case="backfill"),
    Target(work="40,000 events over 600 days beside the same over 6: the steps", case="sparse"),
    Target(work="Two cores beside one, two workers beside one", case="cores"),
    Target(work="HTTP: 10,000 durable events, and the latency at 2,000 a second", case="http"),
    Target(work="REST API and status page with 1,000 pipelines", case="control_plane"),
    Target(work="1,000,000 events from Kafka beside files and Spark's streaming", case="kafka"),
    Target(work="A query over PostgreSQL into Delta tables, beside COPY and an append", case="sql_to_delta"),
    Target(work="... into a table of PostgreSQL, beside psql's COPY and upsert", case="sql_to_postgres"),
    Target(work="150,000 changes of PostgreSQL's log decoded on one core", case="cdc"),
    Target(
        work="A table copied by PostgreSQL's log, then a fifth of its rows updated",
        case="cdc_table",
        metrics="(copy|apply)_.*",
    ),
    Target(
        work="... the updates beside decoding by the server, supabase/etl and one MERGE",
        case="cdc_table",
        metrics="parts_.*",
    ),
    Target(work="Two captured tables copied at once, beside one after the other", case="cdc_copies"),
    Target(work="1,000 changes a second from PostgreSQL's log to four tables", case="cdc_latency"),
    Target(work="A worker that follows 100 idle tables by PostgreSQL's log", case="captures_idle"),
    Target(work="100,000 rows of a table into a search index, beside the engine", case="search"),
    Target(work="500 events a second from Kafka to PostgreSQL and a search index", case="latency"),
    Target(work="Three domains: acknowledged, recovered, opened", case="mirror"),
)
STEPS = ("raw_events", "normalized_orders", "warehouse_rows", "order_status_view")


def main() -> None:
    """Write table and plots."""
    results = read_results()
    page = ROOT / PAGE
    page.write_text(with_table(page.read_text("utf-8"), results), "utf-8")
    for path, content in plots(results).items():
        (ROOT / path).write_text(content, "utf-8")


def read_results(folder: Path = RESULTS) -> dict[str, list[Figure]]:
    """The kept figures by case."""
    return {
        file.stem: [Figure(**row) for row in json.loads(file.read_text("utf-8"))]
        for file in sorted(folder.glob("*.json"))
    }


def with_table(page: str, results: Mapping[str, Sequence[Figure]]) -> str:
    """The page with the table of these results between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(results)}{END}{after}"


def table(results: Mapping[str, Sequence[Figure]]) -> str:
    """Every target with its figures; `not measured` where a case has no kept results."""
    lines = [
        "| work | case | figure | ours | other | ratio | target | met |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for target in TARGETS:
        work = target.work
        for row in figures_of(target, results):
            met = "yes" if row.met else "**no**"
            numbers = (_number(value) for value in (row.ours, row.other, row.ratio, row.target))
            cells = (work, f"`{row.case}`", row.metric.replace("_", " "), *numbers, met)
            lines.append("| " + " | ".join(cells) + " |")
            work = ""
        if work:
            lines.append(f"| {work} | `{target.case}` | not measured | | | | | |")
    return "\n".join(lines) + "\n"


def figures_of(target: Target, results: Mapping[str, Sequence[Figure]]) -> Iterator[Figure]:
    """The figures that answer a target."""
    for row in results.get(target.case, ()):
        if row.target is not None and re.fullmatch(target.metrics, row.metric):
            yield row


def plots(results: Mapping[str, Sequence[Figure]]) -> dict[Path, str]:
    """The plots by where they stand."""
    found = [row for target in TARGETS for row in figures_of(target, results)]
    shares = [
        Bar(
            label=f"{row.case}: {row.metric.replace('_', ' ')}",
            value=(row.ours if row.ratio is None else row.ratio) / (row.target or 1),
            good=bool(row.met),
        )
        for row in found
    ]
    by_metric = {row.metric: row for row in results.get("increment", ())}
    steps = [
        Bar(label=f"{step}, {rows} rows of history", value=value, good=True)
        for step in STEPS
        if (row := by_metric.get(f"{step}_wall_seconds_grown")) is not None and row.other is not None
        for rows, value in (("1,000,000", row.other), ("10,000,000", row.ours))
    ]
    return {
        TARGETS_PLOT: bar_chart("Figures as parts of their targets: up to 1 is met", shares, line=1.0),
        STEPS_PLOT: bar_chart("Wall seconds of a step for 10,000 new events", steps),
    }


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
