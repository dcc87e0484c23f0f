"""Dagster's webserver: requests to its one address, and problems that say why it does not answer.

Redirects are not followed, proxies of the environment are not asked, and no cookie is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import quote

import httpx
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from etl_assets.control.ui.headers import for_browser
from etl_assets.serve.problems import ProblemDetails
from etl_assets.settings.ui import PATH_PREFIX, UiSettings

logger = logging.getLogger("etl_assets.serve")
CONNECT_SECONDS = 5.0
MAX_CONNECTIONS = 64
_START = (
    f"start it with `etl-assets dev`, or with `dagster-webserver --path-prefix {PATH_PREFIX}`, on the address"
    " that `serve.ui.address` of the platform file names"
)


class Webserver:
    """Dagster's webserver.

    Args:
        settings: Its address and limits.
    """

    def __init__(self, settings: UiSettings) -> None:
        self.settings = settings
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(
                settings.answer_timeout_seconds, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS
            ),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
            # A jar would bring a cookie of one person's answer into the next one's request.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            follow_redirects=False,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def answer(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        headers: Mapping[str, str],
        content: bytes | None = None,
    ) -> StreamingResponse:
        """Send a request, and return the answer as it comes.

        Args:
            method: The method.
            path: Path after the prefix, decoded.
            query: Query, as it was sent.
            headers: All headers.
            content: The body.

        Raises:
            ProblemDetails: 404 for a path that leaves the prefix, 502 or 504 without an answer.
        """
        target = self._url(path) + (f"?{query}" if query else "")
        request = self._client.build_request(method, target, headers=headers, content=content)
        with _problems():
            answer = await self._client.send(request, stream=True)
        sent = for_browser(answer.headers.multi_items(), f"{PATH_PREFIX}/{path}", self.settings.address)
        return _Passed(answer, sent)

    async def expect_prefix(self) -> None:
        """Refuse a webserver that runs without the prefix: its pages would stay empty.

        Raises:
            ProblemDetails: 502 or 504.
        """
        with _problems():
            found = await self._client.get(self._url("server_info"))
        if "dagster_webserver_version" not in found.text:
            raise ProblemDetails(
                502, "ui-without-prefix", f"what answers is no webserver with this prefix: {_START}"
            )

    def _url(self, path: str) -> str:
        if any(each in (".", "..") for each in path.split("/")):
            raise ProblemDetails(404, "not-found", "a path of the UI has no `.` and `..`")
        return f"{self.settings.address}{PATH_PREFIX}/{quote(path)}"


class _Passed(StreamingResponse):
    """An answer that is passed on part by part, in the encoding that it has."""

    def __init__(self, answer: httpx.Response, headers: Mapping[str, str]) -> None:
        self._answer = answer
        super().__init__(_parts(answer), answer.status_code, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, and let the connection go however that ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await asyncio.shield(self._answer.aclose())


async def _parts(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for part in answer.aiter_raw():
            yield part
    except httpx.HTTPError as error:
        # The answer has begun. It is cut off, so that it does not pass for a whole one.
        logger.warning("Dagster's webserver broke off an answer: %s", type(error).__name__)
        raise


@contextmanager
def _problems() -> Generator[None]:
    try:
        yield
    except httpx.PoolTimeout:
        raise _busy() from None
    except (httpx.ConnectError, httpx.ConnectTimeout):
        raise unavailable() from None
    except httpx.TimeoutException:
        raise ProblemDetails(
            504,
            "ui-slow",
            "Dagster's webserver does not answer in time: look at its log, or raise"
            " `serve.ui.answer_timeout_seconds`",
            headers={"Retry-After": "5"},
        ) from None
    except httpx.HTTPError as error:
        detail = f"Dagster's webserver broke off its answer ({type(error).__name__}): look at its log"
        raise ProblemDetails(502, "ui-unavailable", detail, headers={"Retry-After": "5"}) from None


def _busy() -> ProblemDetails:
    return ProblemDetails(
        503, "ui-busy", "all connections to Dagster's webserver are in use", headers={"Retry-After": "1"}
    )


def unavailable() -> ProblemDetails:
    """Return the problem of a webserver that is not there."""
    return ProblemDetails(
        502,
        "ui-unavailable",
        f"Dagster's webserver does not answer: {_START}",
        headers={"Retry-After": "5"},
    )
