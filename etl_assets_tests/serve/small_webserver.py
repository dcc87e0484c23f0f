"""A real server with the routes of Dagster's webserver, which answers with what it was sent."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect


class SmallWebserver:
    """What has reached the server, and its address."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.websockets: list[dict[str, Any]] = []
        self.closed = 0
        self.has_prefix = True
        self.port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def app(self) -> Starlette:
        routes = [
            Route("/server_info", self._info),
            Route("/moved", self._moved),
            Route("/slow", self._slow),
            Route("/stream", self._stream),
            Route("/broken", self._broken),
            WebSocketRoute("/graphql", self._follow),
            Route("/{path:path}", self._echo, methods=["GET", "POST"]),
        ]
        return Starlette(routes=[Mount("/ui", routes=routes)])

    async def _info(self, _: Request) -> Response:
        # Without the prefix, Dagster's webserver shows its page at any path.
        found = {"dagster_webserver_version": "1"} if self.has_prefix else {}
        return JSONResponse(found)

    async def _echo(self, request: Request) -> Response:
        self.requests.append(
            {
                "method": request.method,
                "path": request.url.path,
                "query": request.url.query,
                "headers": dict(request.headers),
                "body": (await request.body()).decode(),
            }
        )
        return JSONResponse({"data": {}}, headers={"set-cookie": "etl_assets_session=taken"})

    async def _moved(self, _: Request) -> Response:
        return RedirectResponse(f"{self.address}/ui/runs")

    async def _slow(self, _: Request) -> Response:
        await asyncio.sleep(3)
        return Response("late")

    async def _stream(self, _: Request) -> Response:
        async def parts():
            for number in range(3):
                yield f"{number}\n".encode()
                await asyncio.sleep(0.3)

        return StreamingResponse(parts(), media_type="text/plain")

    async def _broken(self, _: Request) -> Response:
        async def parts():
            yield b"begun"
            await asyncio.sleep(0.1)
            raise ConnectionError

        return StreamingResponse(parts(), media_type="text/plain")

    async def _follow(self, websocket: WebSocket) -> None:
        self.websockets.append(dict(websocket.headers))
        await websocket.accept(subprotocol="graphql-ws")
        try:
            while True:
                message = await websocket.receive_json()
                if message["type"] == "connection_terminate":
                    await websocket.close()
                    return
                await websocket.send_json({"type": "data", "sent": message})
        except WebSocketDisconnect:
            self.closed += 1


@contextmanager
def small_webserver() -> Generator[SmallWebserver]:
    """Run the server in a thread."""
    made = SmallWebserver()
    config = uvicorn.Config(made.app(), port=0, log_level="critical", ws="websockets-sansio")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.01)
        made.port = server.servers[0].sockets[0].getsockname()[1]
        yield made
    finally:
        server.should_exit = True
        thread.join(20)


def start(query: str) -> str:
    """Return the message that starts an operation over a websocket."""
    return json.dumps({"id": "1", "type": "start", "payload": {"query": query}})
