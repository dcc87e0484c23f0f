"""Whether the Python functions of a declaration may be named, and can be imported.

Belongs here: the list of modules, and the import, which runs the user's code. Does not belong here: calling
the functions.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence

from etl_assets.pipelines.origin import DeclarationOrigin
from etl_assets.pipelines.pipeline_file import PipelineFile
from etl_assets.pipelines.problem import Path, Problem, near
from etl_assets.pipelines.transform_specs import PythonTransform


def module_problems(file: PipelineFile, modules: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each function of a file in a module that is not one of some; nothing is imported.

    What a declaration over REST may name is another list (`rest_rights.py`).
    """
    if file.spec is None or file.origin is not DeclarationOrigin.FILE:
        return
    for index, transform in enumerate(file.spec.transforms):
        if isinstance(transform, PythonTransform):
            module = transform.function.partition(":")[0]
            if module not in modules:
                yield file.problem(
                    ("transforms", index, "function"),
                    f"transforms may not name functions of the module `{module}`",
                    f"{near(module, modules)}allowed: {', '.join(modules) or 'none'}"
                    " (`pipelines.python_modules` of the platform file)",
                )


def function_problems(file: PipelineFile) -> Iterator[Problem]:
    """Yield a problem for each function of a pipeline that is not there. What its module prints goes to
    stderr.
    """
    for index, transform in enumerate(() if file.spec is None else file.spec.transforms):
        if isinstance(transform, PythonTransform):
            yield from _problems(file, ("transforms", index, "function"), transform.function)


def _problems(file: PipelineFile, place: Path, reference: str) -> Iterator[Problem]:
    module_name, _, name = reference.partition(":")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's module may raise anything, and it is reported
        why = f"{type(error).__name__}: {error}"[:300]
        fix = "install its package where the platform runs, or put its folder on PYTHONPATH"
        is_absent = isinstance(error, ModuleNotFoundError) and module_name.startswith(str(error.name))
        yield file.problem(
            place,
            f"the module `{module_name}` cannot be imported: {why}",
            fix if is_absent else "correct the module",
        )
        return
    function = getattr(module, name, None)
    if function is None:
        names = [
            each for each in vars(module) if callable(getattr(module, each)) and not each.startswith("_")
        ]
        yield file.problem(
            place,
            f"the module `{module_name}` has no `{name}`",
            f"{near(name, names)}functions: {', '.join(names) or 'none'}",
        )
    elif not callable(function):
        yield file.problem(place, f"`{reference}` is no function", "name a function")
