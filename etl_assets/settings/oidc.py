"""Settings of tokens of an OpenID Connect issuer."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from etl_assets.settings.loopback import is_loopback
from etl_assets.settings.section import Section


def _secure(value: str) -> str:
    parts = urlsplit(value)
    host = parts.hostname or ""
    if not host or (parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host))):
        raise ValueError("it is not an `https://` address; keys that come without TLS may be anybody's")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("an address has neither credentials nor options")
    return value


SecureUrl = Annotated[str, AfterValidator(_secure), Field(max_length=2_000)]


class OidcSettings(Section):
    """Tokens of an OpenID Connect issuer, which `etl-assets serve` accepts beside its own."""

    issuer: Annotated[
        SecureUrl,
        Field(
            examples=["https://login.example.com/realms/data"],
            description="the issuer, exactly as `iss` of its tokens has it",
        ),
    ]
    audience: Annotated[
        str, Field(min_length=1, examples=["etl-assets"], description="what `aud` of a token must have")
    ]
    jwks_url: Annotated[
        SecureUrl | None,
        Field(description="address of its keys; by default as its `/.well-known/openid-configuration` says"),
    ] = None
    scopes_claim: Annotated[
        str,
        Field(
            min_length=1,
            description="claim with the scopes (`ingest`, `read`, `operate`, `admin`), as a list or a text"
            " with spaces; other words in it are ignored",
        ),
    ] = "scope"
    tenant_claim: Annotated[
        str | None,
        Field(min_length=1, description="claim with the tenant; by default all tokens are of `default`"),
    ] = None
