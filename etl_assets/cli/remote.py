"""A client of the REST API for commands: run control and declarations of a server elsewhere.

Belongs here: requests, and problem details as the errors that a command has. Does not belong here: what
commands print (`run_control.py`).
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self
from urllib.parse import quote, urlsplit

import click

from etl_assets import environment, errors
from etl_assets.errors import RequestRefused, RuntimeMissing, SettingsError

if TYPE_CHECKING:
    import httpx

    from etl_assets.control.records import PipelineControl, PipelineRun

_TRIES = 3
"""Every request may be repeated: an answer may be lost, and a run has a key."""
_SECONDS = 60.0
URL_OPTION = click.option(
    "--url",
    metavar="URL",
    help=f"Server of `etl-assets serve`; by default {environment.URL.name}, else this home folder. Its token"
    f" is {environment.TOKEN.name}.",
)


def server_url(given: str | None) -> str | None:
    """Return the address of the server that a command is for; None for this home folder."""
    return given or environment.URL.read()


class RemoteControl:
    """Run control and declarations of a server, as one client.

    Every method raises:
        TransitionRefused, NotFound, RequestRefused: it refuses, as its problem details say; the last one also
            without an answer.

    Args:
        url: Address of the server.
        transport: Of httpx, for tests.
    """

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        try:
            import httpx
        except ImportError as error:
            raise RuntimeMissing(
                "the package httpx is not installed", fix="pip install 'etl-assets[serve]'"
            ) from error
        token = environment.TOKEN.read()
        if token is None:
            raise SettingsError(
                f"{environment.TOKEN.name} is not set, which the server needs",
                fix="set it to what `etl-assets tokens add NAME --scope operate` prints there",
                field=environment.TOKEN.name,
            )
        _warn_of_plain_text(url)
        self._url = url.rstrip("/")
        headers = {"authorization": f"Bearer {token}"}
        self._client = httpx.Client(headers=headers, timeout=_SECONDS, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._client.close()

    def request_run(self, name: str, reason: str) -> PipelineRun:
        """Ask for a run. The actor is the client of the token."""
        from etl_assets.control.records import PipelineRun

        key = {"idempotency-key": str(uuid.uuid4())}
        return _typed(PipelineRun, self._send("POST", f"{_path(name)}/run", {"reason": reason}, headers=key))

    def change(self, action: str, name: str, reason: str) -> PipelineControl:
        """Pause, resume, cancel or retry, and return the state after it."""
        return _state(self._send("POST", f"{_path(name)}/{action}", {"reason": reason}))

    def state_of(self, name: str) -> PipelineControl:
        """Return the state of a pipeline."""
        return _state(self._send("GET", f"{_path(name)}/state"))

    def runs(self, name: str, *, limit: int) -> tuple[PipelineRun, ...]:
        """Return the newest runs of a pipeline."""
        from etl_assets.control.records import PipelineRun

        found = self._send("GET", f"{_path(name)}/runs?limit={limit}")
        return tuple(_typed(PipelineRun, each) for each in found["data"])

    def apply(self, content: Mapping[str, Any]) -> tuple[int | None, bool]:
        """Declare a pipeline, or replace its declaration, and return its revision and whether it is new."""
        path = _path(str(content.get("name", "")))
        before = self._answer("GET", path) if content.get("name") else None
        if before is None or before.status_code == 404:
            answer = self._answer("POST", "/v1/pipelines", content)
            return self._content(answer)["revision"], answer.status_code == 201
        found = self._content(before)
        changed = self._send("PUT", path, content, headers={"if-match": before.headers["etag"]})
        return changed["revision"], changed["revision"] != found["revision"]

    def _send(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> Any:
        return self._content(self._answer(method, path, body, headers=headers))

    def _answer(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        import httpx

        for left in reversed(range(_TRIES)):
            try:
                return self._client.request(method, self._url + path, json=body, headers=headers)
            except httpx.TransportError as error:
                if not left:
                    raise RequestRefused(
                        f"{self._url} does not answer ({type(error).__name__})",
                        fix="see whether `etl-assets serve` runs there and --url is right; send it again",
                        status=None,
                        kind="no-answer",
                    ) from error
            except httpx.InvalidURL as error:
                raise SettingsError(
                    f"{self._url!r} is no address of a server", fix="such as `https://etl.example.com`"
                ) from error
        raise AssertionError("unreachable")

    def _content(self, answer: httpx.Response) -> Any:
        try:
            content = answer.json()
        except ValueError:
            content = None
        if answer.is_success and isinstance(content, dict):
            return content
        if not isinstance(content, dict) or "detail" not in content:
            raise RequestRefused(
                f"{self._url} answers {answer.status_code}, which the REST API does not",
                fix="see whether --url is the address of `etl-assets serve`",
                status=answer.status_code,
            )
        _refused(answer.status_code, content)


def _refused(status: int, problem: Mapping[str, Any]) -> NoReturn:
    """Raise the error that problem details stand for."""
    kind = str(problem.get("type", "")).rpartition(":")[2]
    message, _, fix = str(problem["detail"]).partition(": ")
    parts = [each for each in problem.get("errors", ()) if "field" in each]
    listed = [f"{each['field']}: {each.get('message')}" for each in parts]
    whole = "\n  ".join([str(problem["detail"]), *listed])
    match kind:
        case "transition-refused":
            fix = fix or "see `etl-assets pipelines runs`"
            allowed = tuple(problem.get("allowed", ()))
            raise errors.TransitionRefused(message, fix=fix, state=problem.get("state"), allowed=allowed)
        case "control-store-unavailable":
            raise errors.ControlStoreUnavailable(whole, fix="send it again")
    if status == 404:
        raise errors.NotFound(whole, fix="`etl-assets tokens` there says what the token is for")
    if status in (401, 403):
        raise RequestRefused(whole, fix=f"correct {environment.TOKEN.name}", status=status, kind=kind)
    again = "send it again" if status >= 500 or status == 429 else "correct it"
    raise RequestRefused(whole, fix=again, status=status, kind=kind)


def _path(name: str) -> str:
    return f"/v1/pipelines/{quote(name, safe='')}"


def _state(found: Mapping[str, Any]) -> PipelineControl:
    from etl_assets.control.records import PipelineControl

    return _typed(PipelineControl, found)


def _typed(kind: type[Any], found: Mapping[str, Any]) -> Any:
    """Return a record of an answer. Fields that this release does not know are left out."""
    from pydantic import TypeAdapter

    known = {name: value for name, value in found.items() if name in kind.__dataclass_fields__}
    return TypeAdapter(kind).validate_python(known)


def _warn_of_plain_text(url: str) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if parts.scheme == "http" and not is_here:
        click.echo(f"the token crosses the network readable: use https for {host}", err=True)
