"""What the repository promises of itself: its lock, its commands, its top level, its package data."""

from __future__ import annotations

import re
import subprocess
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "deploy" / "requirements.txt"
TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Makefile",
    "README.md",
    "benchmarks",
    "deploy",
    "docs",
    "etl_assets",
    "etl_assets_tests",
    "pyproject.toml",
    "setup.cfg",
    "workspace.yaml",
}


@pytest.fixture(scope="module")
def setup() -> ConfigParser:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def locked() -> list[tuple[Requirement, list[str]]]:
    """Every requirement of the lock with what follows it."""
    entries = re.split(r"\n(?=\S)", LOCK.read_text())
    parts = [entry.replace("\\\n", "").split(" --hash=") for entry in entries if not entry.startswith("#")]
    return [(Requirement(requirement), [one.strip() for one in hashes]) for requirement, *hashes in parts]


def files_of_the_repository() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so nothing says which files belong to it")
    listing = [
        "git",
        "-C",
        str(ROOT),
        "-c",
        f"safe.directory={ROOT}",
        "ls-files",
        "-co",
        "--exclude-standard",
        "-z",
    ]
    return subprocess.run(listing, capture_output=True, text=True, check=True).stdout.strip("\0").split("\0")


def test_the_lock_names_no_address():
    assert re.findall(r"https?:|file:|--(?:extra-)?index|--find-links|--trusted-host", LOCK.read_text()) == []


def test_everything_locked_has_one_version_and_its_hashes():
    entries = locked()
    assert len(entries) > 50
    for requirement, hashes in entries:
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), requirement


def test_the_lock_holds_every_dependency_in_a_version_it_may_have(setup):
    versions = {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one, _ in locked()}
    wanted = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    for line in "\n".join(wanted).splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            assert versions[canonicalize_name(requirement.name)] in requirement.specifier, line


def test_every_dependency_says_why_it_is_there():
    lines = [line.strip() for line in (ROOT / "setup.cfg").read_text().splitlines()]
    start = lines.index("install_requires =")
    end = lines.index("[options.packages.find]")
    for before, line in zip(lines[start:end], lines[start + 1 : end], strict=False):
        if re.match(r"[a-z]", line) and not line.endswith("="):
            assert before.startswith("#"), line


def test_make_lists_every_target():
    listed = subprocess.run(
        ["make", "-C", str(ROOT), "-s"], capture_output=True, text=True, check=True
    ).stdout
    targets = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets is not None
    assert re.findall(r"^  make ([a-z-]+)  ", listed, re.MULTILINE) == targets[1].split()
    rules = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rules == targets[1].split()


def test_the_top_level_is_what_was_agreed():
    assert {name.partition("/")[0] for name in files_of_the_repository()} == TOP_LEVEL


def test_the_package_takes_all_its_files_along(setup):
    patterns = setup["options.package_data"]["*"].split(", ")
    for name in files_of_the_repository():
        if name.startswith("etl_assets/") and not name.endswith(".py"):
            folder = next(each for each in Path(name).parents if (ROOT / each / "__init__.py").exists())
            inside = Path(name).relative_to(folder)
            fitting = [each for each in patterns if len(Path(each).parts) == len(inside.parts)]
            assert any(inside.match(pattern) for pattern in fitting), name


def test_every_way_to_start_dagster_loads_the_same_definitions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    (location,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    assert location["python_module"]["module_name"] == project["code_location_target_module"]
    assert location["python_module"]["location_name"] == project["code_location_name"]


def test_ci_ends_with_the_tests():
    assert (ROOT / ".ci" / "run").read_text().rstrip().splitlines()[-1] == "make --no-print-directory test"


def test_ci_rejects_arguments_before_it_does_anything(tmp_path):
    # A copy without tools on PATH: one that goes on fails at its first command instead of starting
    # everything.
    script = tmp_path / ".ci" / "run"
    script.parent.mkdir()
    script.write_bytes((ROOT / ".ci" / "run").read_bytes())
    done = subprocess.run(
        ["/bin/bash", script, "--fast"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert done.returncode == 2
    assert done.stderr.startswith("usage: .ci/run\n")
    assert "--fast" in done.stderr


def test_the_readme_names_the_demo_and_the_tests_as_its_two_commands():
    commands = (ROOT / "README.md").read_text("utf-8").partition("## Two commands")[2].partition("```sh\n")[2]
    lines = commands.partition("```")[0].splitlines()
    assert [line.partition("#")[0].strip() for line in lines] == ["make demo", "make test"]
