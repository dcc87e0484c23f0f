"""docs/performance.md shows the kept results of the benchmarks, all targets of them, and nothing older."""

from __future__ import annotations

import xml.etree.ElementTree

from benchmarks.cases import CASES
from benchmarks.performance_page import (
    PAGE,
    ROOT,
    TARGETS,
    figures_of,
    plots,
    read_results,
    table,
    with_table,
)
from benchmarks.report import figure


def test_the_page_and_its_plots_are_those_of_the_results():
    results = read_results()
    page = (ROOT / PAGE).read_text("utf-8")
    assert page == with_table(page, results), "run `make docs`"
    for path, content in plots(results).items():
        assert (ROOT / path).read_text("utf-8") == content, f"{path}: run `make docs`"


def test_every_figure_with_a_target_is_in_the_table_once():
    results = read_results()
    shown = [row for target in TARGETS for row in figures_of(target, results)]
    wanted = [row for rows in results.values() for row in rows if row.target is not None]
    assert sorted(shown, key=repr) == sorted(wanted, key=repr)
    assert {target.case for target in TARGETS} >= set(CASES)


def test_a_missed_target_and_a_case_without_results_are_told():
    missed = figure("backfill", "wall_seconds", 3.0, 2.0, load=0.0, target=1.2)
    lines = table({"backfill": [missed]}).splitlines()
    assert (
        "| Backfill of 30 days beside one bulk run | `backfill` | wall seconds | 3 | 2 | 1.5 | 1.2 | **no** |"
        in lines
    )
    assert any("`steady` | not measured" in line for line in lines)


def test_a_plot_is_well_formed_and_has_a_bar_for_each_figure():
    odd = figure("backfill", "a<b&c", 3.0, 2.0, load=0.0, target=1.2)
    for content in plots({"backfill": [odd]}).values():
        root = xml.etree.ElementTree.fromstring(content)
        assert root.tag.endswith("svg")
    assert "a&lt;b&amp;c" in next(iter(plots({"backfill": [odd]}).values()))
