"""The sensor of changed declarations: lets Dagster load them within seconds.

Dagster shows the pipelines that were there when it loaded the code location. Runs and workers read the
declarations as they are, so that data never waits for a reload, and one that is broken is shown as a broken
asset and unloads nothing.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from time import monotonic

import dagster as dg

from etl_assets import environment
from etl_assets.settings import Settings

AGAIN_SECONDS = 60.0
"""When to ask again for a reload that has not come."""
_ANSWER_SECONDS = 2.0
"""The answer comes after the reload, with which the process of this sensor ends: it is not waited for."""
_RELOAD = """
mutation($name: String!) {
    reloadRepositoryLocation(repositoryLocationName: $name) {
        __typename ... on ReloadNotSupported { message } ... on RepositoryLocationNotFound { message }
        ... on UnauthorizedError { message } ... on PythonError { message }
    }
}
"""


def changed_pipelines_sensor(
    settings: Settings, clock: Callable[[], float] = monotonic
) -> dg.SensorDefinition:
    """Build the sensor. It asks the web server that `ETL_ASSETS_DAGSTER_URL` names; `etl-assets dev` sets it.

    Args:
        settings: The platform file.
        clock: Returns the seconds of a monotonic clock.
    """
    loaded = settings.installed().files
    asked_at = float("-inf")

    @dg.sensor(
        name="changed_pipelines",
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=1,  # with each look of the daemon, every five seconds
        description="Lets Dagster load pipelines that were declared, changed or removed. On by default.",
    )
    def changed_pipelines(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        nonlocal asked_at
        if settings.installed().files == loaded:
            return dg.SkipReason("Dagster shows the declarations as they are.")
        url = environment.DAGSTER_URL.read()
        if url is None:
            return dg.SkipReason(
                "Declarations have changed: reload the code location, or set"
                f" {environment.DAGSTER_URL.name} for the code server so that this sensor does."
            )
        if clock() - asked_at >= AGAIN_SECONDS:
            asked_at = clock()
            origin = context.code_location_origin
            assert origin is not None  # the daemon evaluates it for a code location
            _reload(url, origin.location_name)
        return dg.SkipReason("Declarations have changed, and Dagster loads them.")

    return changed_pipelines


def _reload(url: str, location: str) -> None:
    """Ask a web server to load a code location again.

    Raises:
        RuntimeError: it refuses, or is not there.
    """
    body = json.dumps({"query": _RELOAD, "variables": {"name": location}}).encode()
    request = urllib.request.Request(
        f"{url.rstrip('/')}/graphql", data=body, headers={"Content-Type": "application/json"}
    )
    # An address of this platform's own server: no proxy stands before it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ANSWER_SECONDS) as answer:
            found = json.load(answer)["data"]["reloadRepositoryLocation"]
    except TimeoutError:
        return
    except (urllib.error.URLError, OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(getattr(error, "reason", None), TimeoutError):
            return
        raise RuntimeError(
            f"{url} does not reload code locations ({error}): {environment.DAGSTER_URL.name} has to be the"
            " address of Dagster's web server"
        ) from error
    if "message" in found:
        raise RuntimeError(f"Dagster does not reload {location}: {found['message']}")
