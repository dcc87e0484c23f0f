"""A schema registry on a port of this machine: the documented REST endpoints that are used here.

It is not Confluent's server: what a test shows with it is that the client speaks the documented protocol over
a real connection.

Belongs here: registering schemas, serving them, and being broken on purpose.
"""

from __future__ import annotations

import base64
import json
import re
import socketserver
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryServer:
    """Serves `GET /schemas/ids/{id}` and `GET /subjects/{subject}/versions/{version}`.

    Args:
        user: User and password of basic authentication, `user:password`; empty: none is needed.
    """

    def __init__(self, user: str = "") -> None:
        self.user = user
        self.status = 0
        self.body: bytes | None = None
        self.delay_seconds = 0.0
        self.location = ""
        self.requests: list[str] = []
        self._schemas: dict[int, dict[str, Any]] = {}
        self._versions: dict[tuple[str, int], int] = {}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                owner.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        assert isinstance(self._server, socketserver.ThreadingMixIn)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def register(
        self,
        subject: str,
        schema: Any,
        *,
        type_: str = "AVRO",
        references: Sequence[tuple[str, str, int]] = (),
        schema_id: int | None = None,
    ) -> int:
        """Add a schema, and return its id."""
        number = 100 + len(self._schemas) if schema_id is None else schema_id
        held: dict[str, Any] = {"schema": json.dumps(schema)}
        if type_ != "AVRO":
            held["schemaType"] = type_
        if references:
            names = ("name", "subject", "version")
            held["references"] = [dict(zip(names, each, strict=True)) for each in references]
        self._schemas[number] = held
        version = 1 + sum(1 for known, _ in self._versions if known == subject)
        self._versions[subject, version] = number
        return number

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(request.path)
        time.sleep(self.delay_seconds)
        status, content = self._found(request)
        body = json.dumps(content).encode() if self.body is None else self.body
        request.send_response(status)
        request.send_header("content-type", MEDIA_TYPE)
        request.send_header("content-length", str(len(body)))
        if self.location:
            request.send_header("location", self.location)
        request.end_headers()
        request.wfile.write(body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> RegistryServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _found(self, request: BaseHTTPRequestHandler) -> tuple[int, dict[str, Any]]:
        if self.status:
            return self.status, {"error_code": self.status * 100 + 1, "message": "broken on purpose"}
        expected = "Basic " + base64.b64encode(self.user.encode()).decode()
        if self.user and request.headers.get("authorization") != expected:
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        path = request.path.partition("?")[0]
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            held = self._schemas.get(int(found[1]))
            return (200, held) if held else (404, {"error_code": 40403, "message": "Schema not found"})
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)", path):
            number = self._versions.get((found[1], int(found[2])))
            if number is None:
                return 404, {"error_code": 40402, "message": "Version not found."}
            return 200, {"subject": found[1], "version": int(found[2]), "id": number} | self._schemas[number]
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
