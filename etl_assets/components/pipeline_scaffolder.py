"""`dg scaffold defs etl_assets.Pipeline NAME`: a declaration to begin with.

Belongs here: the file that is written. Does not belong here: its text (`pipelines/starting_file.py`).
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Annotated

import dagster as dg
from pydantic import BaseModel, Field

from etl_assets import environment


class PipelineScaffolderParams(BaseModel):
    """Options of the command."""

    sample: Annotated[
        str | None,
        Field(
            description="A .csv, .tsv, .jsonl or .ndjson (also .gz) or .parquet file: its first 1,000 records"
            " suggest the columns."
        ),
    ] = None


class PipelineScaffolder(dg.Scaffolder[PipelineScaffolderParams]):
    """Write `defs.yaml` with a valid pipeline, named as its folder."""

    @classmethod
    def get_scaffold_params(cls) -> type[PipelineScaffolderParams]:
        """Return the options."""
        return PipelineScaffolderParams

    def scaffold(self, request: dg.ScaffoldRequest[PipelineScaffolderParams]) -> None:
        """Write the file.

        Raises:
            SettingsError: no pipeline can have the name, or Python is asked for.
            InputError: the sampled file cannot be used.
        """
        from etl_assets.errors import SettingsError

        if request.scaffold_format != "yaml":
            raise SettingsError("a pipeline is declared in YAML", fix="leave out `--format python`")
        path = request.target_path if request.append else request.target_path / "defs.yaml"
        text = _component(request, path)
        with path.open("a" if request.append else "w", encoding="utf-8") as file:
            file.write(f"---\n{text}" if request.append else text)


def _component(request: dg.ScaffoldRequest[PipelineScaffolderParams], path: Path) -> str:
    from etl_assets.errors import SettingsError
    from etl_assets.installed import built_in_catalog
    from etl_assets.pipelines.component_files import PIPELINE
    from etl_assets.pipelines.cross_checks import checked
    from etl_assets.pipelines.pipeline_file import parse_pipeline
    from etl_assets.pipelines.sample import read_sample
    from etl_assets.pipelines.starting_file import starting_file
    from etl_assets.settings import load_settings

    home = Path(environment.HOME.read() or (request.project_root or Path.cwd()) / ".etl-assets")
    sample = request.params.sample
    name = path.parent.name
    text = starting_file(
        name,
        None if sample is None else read_sample(Path(sample)),
        home.expanduser().absolute(),
        component=path.relative_to(request.project_root or path.anchor),
    )
    built_in = load_settings({**os.environ, environment.HOME.name: str(home)}).pipelines.built_in
    (file,) = checked([parse_pipeline(text.encode(), path)], built_in_catalog(built_in))
    for problem in file.problems:
        raise SettingsError(
            f"no pipeline can be made: {problem.message}", fix=problem.fix, field=problem.field
        )
    return f"type: {PIPELINE}\nattributes:\n{textwrap.indent(text, '  ')}"
