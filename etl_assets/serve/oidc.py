"""Tokens of an OpenID Connect issuer: signed by a key of the issuer, for this server, and not expired.

Belongs here: from a JWT to a `Token`, and the issuer's keys. Does not belong here: what a token may do
(`access.py`).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import jwt

from etl_assets.pipelines.origin import DEFAULT_TENANT
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.tokens import PREFIX, Scope, Token
from etl_assets.settings.oidc import OidcSettings

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Asymmetric ones only: with a shared secret, the public key of the issuer would sign."""
TIMEOUT_SECONDS = 5.0
KEYS_SECONDS = 300.0
"""How long keys count as current."""
COOLDOWN_SECONDS = 10.0
"""How long an issuer that did not answer, or does not know a key, is not asked again."""
LEEWAY_SECONDS = 30.0
MAX_BYTES = 1 << 20
MAX_TOKEN_CHARACTERS = 16_384
_MAX_NAME = 200
_LAST_SECOND = 253_402_300_799


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Keys come from the address that the platform file names."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none."""


class IssuerKeys:
    """The public keys of an issuer, by their id. Thread-safe: one thread at a time asks.

    Args:
        settings: The issuer.
        monotonic: Returns seconds.
    """

    def __init__(self, settings: OidcSettings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._monotonic = settings, monotonic
        self._asking = threading.Lock()
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._current_until = self._ask_again_at = float("-inf")
        self._failure = ""
        self._open = urllib.request.build_opener(_NoRedirect()).open

    def key(self, kid: str) -> jwt.PyJWK | None:
        """Return a key; None if the issuer does not have it. A key that is not known is asked for again.

        Raises:
            ProblemDetails: 503 if the issuer does not answer.
        """
        with self._asking:
            now = self._monotonic()
            if kid in self._keys and now < self._current_until:
                return self._keys[kid]
            if now >= self._ask_again_at:
                self._ask(now)
            if self._failure:
                raise ProblemDetails(
                    503,
                    "issuer-unavailable",
                    "the issuer of this token does not answer, so the token cannot be checked; tokens of"
                    " `etl-assets tokens add` are not affected",
                    headers={"Retry-After": "10"},
                )
            return self._keys.get(kid)

    def _ask(self, now: float) -> None:
        self._ask_again_at = now + COOLDOWN_SECONDS
        try:
            found = jwt.PyJWKSet.from_dict(self._read(self._address()))
        except (OSError, ValueError, jwt.PyJWTError) as error:
            self._failure = type(error).__name__
            return
        keys = {each.key_id: each for each in found.keys if each.key_id}
        self._keys, self._failure = keys, ""
        self._current_until = now + KEYS_SECONDS

    def _address(self) -> str:
        settings = self._settings
        if settings.jwks_url is not None:
            return settings.jwks_url
        found = self._read(f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != settings.issuer:
            raise ValueError("another issuer")
        return (
            OidcSettings(
                issuer=settings.issuer, audience=settings.audience, jwks_url=found.get("jwks_uri")
            ).jwks_url
            or ""
        )

    def _read(self, address: str) -> dict[str, Any]:
        with self._open(address, timeout=TIMEOUT_SECONDS) as answer:
            content = answer.read(MAX_BYTES + 1)
        found = json.loads(content) if len(content) <= MAX_BYTES else None
        if not isinstance(found, dict):
            raise ValueError("no JSON object")
        return found


class OidcTokens:
    """The tokens of an issuer."""

    def __init__(self, settings: OidcSettings, keys: IssuerKeys | None = None) -> None:
        self._settings = settings
        self._keys = keys or IssuerKeys(settings)

    def is_one(self, secret: str) -> bool:
        """Return whether a token has the form of a JWT, and not that of the server's own."""
        return (
            len(secret) <= MAX_TOKEN_CHARACTERS and secret.count(".") == 2 and not secret.startswith(PREFIX)
        )

    def of(self, secret: str, now: dt.datetime) -> Token:
        """Return what a JWT allows. May wait for the issuer.

        Raises:
            ProblemDetails: 401 if it is not valid, 503 if that cannot be found out now.
        """
        try:
            header = jwt.get_unverified_header(secret)
        except jwt.PyJWTError:
            raise invalid("it is no JWT") from None
        kid, algorithm = header.get("kid"), header.get("alg")
        # Before the issuer is asked: what is not signed by a key of its own needs no key.
        if algorithm not in ALGORITHMS or not isinstance(kid, str):
            raise invalid(
                f"its header has `alg` {algorithm!r}; one of {', '.join(ALGORITHMS)} and `kid` are needed"
            )
        key = self._keys.key(kid)
        if key is None:
            raise invalid("the issuer has no key with its `kid`")
        return self._token(self._claims(secret, key), now)

    def _claims(self, secret: str, key: jwt.PyJWK) -> Mapping[str, Any]:
        try:
            return jwt.decode(
                secret,
                key,
                algorithms=[*ALGORITHMS],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise invalid("it has expired") from None
        except jwt.ImmatureSignatureError:
            raise invalid("it is not valid yet") from None
        except jwt.InvalidAudienceError:
            raise invalid("its `aud` is another one") from None
        except jwt.InvalidIssuerError:
            raise invalid("its `iss` is another one") from None
        except jwt.MissingRequiredClaimError as error:
            raise invalid(f"it has no `{error.claim}`") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise invalid("its signature or its claims are not valid") from None

    def _token(self, claims: Mapping[str, Any], now: dt.datetime) -> Token:
        issuer, subject = self._settings.issuer, str(claims["sub"])
        given = claims.get(self._settings.scopes_claim, ())
        words = given.split() if isinstance(given, str) else given if isinstance(given, list) else ()
        scopes = tuple(each.value for each in Scope if each.value in words)
        ends_at = dt.datetime.fromtimestamp(min(int(claims["exp"]), _LAST_SECOND), dt.UTC)
        identity = hashlib.sha256(f"{issuer}\0{subject}".encode()).hexdigest()
        return Token(
            id=f"oidc-{identity[:16]}",
            client=f"oidc:{quote(subject, safe=_PLAIN)[:_MAX_NAME]}",
            hash=identity,
            created_at=now.isoformat(timespec="seconds"),
            scopes=scopes,
            tenant=self._tenant(claims),
            expires_at=ends_at.isoformat(timespec="seconds"),
        )

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        name = self._settings.tenant_claim
        if name is None:
            return DEFAULT_TENANT
        found = claims.get(name)
        if (
            not isinstance(found, str)
            or not 0 < len(found) <= _MAX_NAME
            or "/" in found
            or not found.isprintable()
        ):
            raise invalid(f"its claim `{name}` names no tenant")
        return found


_PLAIN = "@:|.+-_ "


def invalid(why: str) -> ProblemDetails:
    """Return the problem of a token of the issuer."""
    return ProblemDetails(
        401,
        "no-valid-token",
        f"the token is not valid: {why}",
        headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
    )
