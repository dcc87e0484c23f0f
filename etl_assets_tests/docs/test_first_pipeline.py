"""The commands of docs/your-first-pipeline.md do what the page says, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from etl_assets.pipelines.pipeline_file import parse_pipeline
from etl_assets.pipelines.problem import Problem

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "your-first-pipeline.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in _BLOCK.findall(page.read_text("utf-8")) if kind == language]


def block(page: Path, language: str, with_text: str) -> str:
    (found,) = (text for text in blocks(page, language) if with_text in text)
    return found


def shell(folder: Path, commands: str) -> str:
    """Run commands as they are printed, in the folder of the clone, and return what they print."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=os.environ
        | {"PATH": path, "ETL_ASSETS_HOME": str(folder / ".etl-assets"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def declared(folder: Path) -> None:
    """Steps 2 and 3 of the page: the file with records, and the pipeline as it is after the edit."""
    shell(folder, block(PAGE, "sh", "first.csv <<"))
    shell(folder, block(PAGE, "sh", "pipelines new"))
    written = folder / ".etl-assets" / "pipelines" / "suppliers.yaml"
    assert problems(written.read_text("utf-8")) == ()
    written.write_text(block(PAGE, "yaml", "name: suppliers"), "utf-8")
    assert shell(folder, block(PAGE, "sh", "pipelines validate")) == f"{written}: ok\n"


def problems(text: str) -> tuple[Problem, ...]:
    return parse_pipeline(text.encode(), Path("suppliers.yaml")).problems


@pytest.mark.parametrize("page", ["README.md", "docs/pipelines.md", "docs/your-first-pipeline.md"])
def test_every_whole_pipeline_in_the_docs_is_valid_and_about_twenty_lines(page):
    pipelines = [text for text in blocks(ROOT / page, "yaml") if re.search("^name: ", text, re.MULTILINE)]
    assert pipelines
    for text in pipelines:
        assert problems(text) == ()
        assert len(text.splitlines()) <= 20


def test_the_page_leads_to_a_valid_pipeline(tmp_path):
    declared(tmp_path)


@pytest.mark.e2e
@pytest.mark.slow
def test_the_page_leads_from_a_file_to_rows_and_a_corrected_dead_letter(tmp_path):
    declared(tmp_path)
    figures = shell(tmp_path, block(PAGE, "sh", "etl-assets run"))
    assert figures == block(PAGE, "text", "suppliers_source: 5 read")
    select = block(PAGE, "sh", "etl-assets sql")
    assert shell(tmp_path, select) == block(PAGE, "text", "Alpha GmbH")
    assert "least 0" in shell(tmp_path, "etl-assets dead-letters list")
    shell(tmp_path, block(PAGE, "sh", "dead-letters replay"))
    assert "103 │ Gamma Sp. z o.o. │        20.00 │ false" in shell(tmp_path, select)
