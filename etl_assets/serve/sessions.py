"""Sessions of browsers: who logged in with a token is known by a cookie until it ends.

A session is kept in memory only, by the hash of the cookie: it ends with the server process, after twelve
hours, and with its token.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from dataclasses import dataclass

from etl_assets.serve.tokens import Token, Tokens

COOKIE = "etl_assets_session"
DURATION = dt.timedelta(hours=12)
MAX_SESSIONS = 1_000
_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """A login.

    Attributes:
        token_id: Id of the token that it was done with.
        form_key: Part of every form of the session, so that other sites cannot send one.
        ends_at: When it ends.
    """

    token_id: str
    form_key: str
    ends_at: dt.datetime


class Sessions:
    """All sessions of a server process."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._sessions: dict[str, BrowserSession] = {}

    def begin(self, token: Token, now: dt.datetime) -> str:
        """Begin a session, and return its cookie. Of too many sessions the oldest one ends."""
        self._sessions = {key: each for key, each in self._sessions.items() if each.ends_at > now}
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        cookie = secrets.token_urlsafe(_BYTES)
        session = BrowserSession(
            token_id=token.id, form_key=secrets.token_urlsafe(_BYTES), ends_at=now + DURATION
        )
        self._sessions[_key(cookie)] = session
        return cookie

    def find(self, cookie: str, now: dt.datetime) -> tuple[BrowserSession, Token] | None:
        """Return the session of a cookie with its token; None if it has ended, or the token is not valid."""
        session = self._sessions.get(_key(cookie))
        if session is None or session.ends_at <= now:
            return None
        token = next((each for each in self._tokens.all() if each.id == session.token_id), None)
        return None if token is None or token.has_expired(now) else (session, token)

    def end(self, cookie: str) -> None:
        """End the session of a cookie."""
        self._sessions.pop(_key(cookie), None)


def _key(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).hexdigest()
