"""Problems of declared queries that only their database shows: columns, types, rows without keys.

Belongs here: asking once for each file, and the lines of problems. Does not belong here: what is checked
(`sources/sql/validation.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from etl_assets.errors import EtlAssetsError, SourceRefused
from etl_assets.pipelines.source_specs import SqlLoad, SqlSource

if TYPE_CHECKING:
    from etl_assets.pipelines.pipeline_file import PipelineFile
    from etl_assets.pipelines.problem import Problem
    from etl_assets.settings import Settings


def with_query_problems(settings: Settings, files: Sequence[PipelineFile]) -> list[PipelineFile]:
    """Return the files, with the problems of their queries."""
    return [file.with_problems(_problems(settings, file)) for file in files]


def _problems(settings: Settings, file: PipelineFile) -> list[Problem]:
    from etl_assets.sources.sql.connect import query_database
    from etl_assets.sources.sql.validation import FULL, INCREMENTAL, query_problems

    source = None if file.spec is None else file.spec.source
    if not isinstance(source, SqlSource):
        return []
    try:
        database = query_database(source, settings)
    except EtlAssetsError as error:
        return [file.problem(("source", "connection"), error.message, error.fix)]
    try:
        with closing(database):
            found = query_problems(
                database,
                key=source.keys[0],
                id=source.keys[1],
                overlap=source.overlap,
                fields=FULL if source.load is SqlLoad.FULL else INCREMENTAL,
            )
    except SourceRefused as error:
        return [file.problem(("source", "query"), error.message, error.fix)]
    except EtlAssetsError as error:
        fix = f"{error.fix}; to validate without the database: --no-connect"
        return [file.problem(("source", "connection"), error.message, fix)]
    return [file.problem(("source", each.field), each.message, each.fix) for each in found]
