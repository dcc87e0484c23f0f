"""Events over HTTP as a good engineer takes them by hand: a FastAPI handler under uvicorn that parses each
line and appends the batch to a file, with an fsync, before it answers.

It does without: several domains, keys, limits of any kind, a queue, what a reader needs to read each batch
once.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import sys
import threading

import uvicorn
from fastapi import FastAPI, HTTPException, Request


def app(file: str, token: str) -> FastAPI:
    """The app, which appends to a file."""
    made, events, alone = FastAPI(), os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), threading.Lock()

    def store(content: bytes) -> None:
        with alone:
            os.write(events, content)
            os.fsync(events)

    @made.post("/events", status_code=202)
    async def take(request: Request) -> dict[str, int]:
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401)
        lines = (await request.body()).splitlines()
        for line in lines:
            if not isinstance(json.loads(line), dict):
                raise HTTPException(422)
        await asyncio.to_thread(store, b"\n".join([*lines, b""]))
        return {"events": len(lines)}

    return made


if __name__ == "__main__":
    _, its_file, its_token, its_port = sys.argv
    uvicorn.run(app(its_file, its_token), port=int(its_port), log_level="warning", access_log=False)
