"""Tokens of an OpenID Connect issuer: a real one on this machine, with keys that are made here."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from etl_assets.errors import SettingsError
from etl_assets.serve import oidc
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets.settings import load_settings
from etl_assets_tests.serve.rest_calls import RestClient, new_service
from etl_assets_tests.serve.server_process import PIPELINE, write_installation


class Issuer:
    """A server with a discovery document and keys."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.asked: list[str] = []
        self.mode = "up"
        issuer = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self):
                issuer.asked.append(self.path)
                content: dict[str, Any] = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"}
                if self.path == "/keys":
                    content = {"keys": [issuer.public(kid) for kid in issuer.keys]}
                if issuer.mode == "other":
                    content["issuer"] = "https://other.example.com"
                if issuer.mode == "silent":
                    time.sleep(3)
                self.send_response({"down": 500, "moved": 302}.get(issuer.mode, 200))
                self.send_header("Location", f"{issuer.url}/keys")
                self.end_headers()
                with suppress(OSError):  # the client does not wait any more
                    self.wfile.write(b"<html>" if issuer.mode == "broken" else json.dumps(content).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.thread = threading.Thread(target=self.server.serve_forever, args=[0.05])
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def public(self, kid: str) -> dict[str, Any]:
        key = self.keys[kid]
        kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        return {**json.loads(kind.to_jwk(key.public_key())), "kid": kid, "use": "sig"}

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = dt.datetime.now(dt.UTC)
        claims = {
            "iss": self.url,
            "aud": "etl-assets",
            "sub": "auth0|ann",
            "exp": now + dt.timedelta(minutes=5),
            "nbf": now,
            "scope": "openid admin",
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, kid: str = "one", *, key: Any = None, algorithm: str = "RS256", **changes: Any) -> str:
        signing = self.keys[kid] if key is None else key
        return jwt.encode(self.claims(**changes), signing, algorithm, headers={"kid": kid})

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


ONE, TWO = (rsa.generate_private_key(65537, 2048) for _ in range(2))


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    made.keys = {"one": ONE}
    yield made
    made.close()


@pytest.fixture
def clock() -> list[float]:
    return [1_000.0]


@pytest.fixture
def ask(issuer, clock, tmp_path, monkeypatch):
    """Returns what a request with a token of the issuer is answered."""
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    settings = {"issuer": issuer.url, "audience": "etl-assets", "tenant_claim": "tenant"}
    write_installation(tmp_path, serve={"oidc": settings})
    service = new_service()
    oidc_settings = service.settings.serve.oidc
    assert oidc_settings is not None
    service.oidc = oidc.OidcTokens(oidc_settings, oidc.IssuerKeys(oidc_settings, lambda: clock[0]))
    client = RestClient(service, scopes=["read"])

    def ask(token: str | None, method: str = "GET", path: str = "/v1/pipelines", **given: Any):
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return client.send(method, path, headers=headers, **given)

    return ask


def refusal(answer) -> str:
    assert answer.status_code == 401, answer.text
    assert answer.headers["www-authenticate"].startswith("Bearer")
    return answer.json()["detail"]


def test_claims_become_scopes_tenant_and_client(issuer, ask, tmp_path):
    answer = ask(issuer.token(tenant="default"))
    assert [each["name"] for each in answer.json()["data"]] == ["dead_letters", PIPELINE]
    assert ask(issuer.token(tenant="acme")).json()["data"] == []
    assert (
        ask(
            issuer.token(tenant="default", scope=["read"]), "POST", f"/v1/pipelines/{PIPELINE}/run"
        ).status_code
        == 403
    )
    assert ask(issuer.token(tenant="default", scope="openid")).status_code == 403
    assert ask(issuer.token(tenant="default", scope=7)).status_code == 403
    run = ask(issuer.token(tenant="default"), "POST", f"/v1/pipelines/{PIPELINE}/run")
    assert (run.status_code, run.json()["requested_by"]) == (202, "oidc:auth0|ann"), run.text
    for tenant in (None, "", "a/b", 7):
        assert "tenant" in refusal(ask(issuer.token(tenant=tenant)))
    assert len(issuer.asked) == 2, "discovery and keys are asked for once"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exp": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}, "expired"),
        ({"exp": None}, "no `exp`"),
        ({"nbf": dt.datetime(2100, 1, 1, tzinfo=dt.UTC)}, "not valid yet"),
        ({"aud": "another"}, "`aud`"),
        ({"aud": None}, "no `aud`"),
        ({"iss": "https://another.example.com"}, "`iss`"),
        ({"sub": None}, "no `sub`"),
        ({"key": TWO}, "signature"),
    ],
)
def test_a_token_that_is_not_for_this_server_now_is_refused(issuer, ask, changes, words):
    assert words in refusal(ask(issuer.token(tenant="default", **changes)))


def unsigned(issuer, algorithm: str) -> str:
    parts = (
        {"alg": algorithm, "kid": "one"},
        {**issuer.claims(tenant="default"), "exp": 4_000_000_000, "nbf": 0},
    )
    head, body = (urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts)
    return f"{head}.{body}."


def test_no_algorithm_without_a_key_of_the_issuer_is_accepted(issuer, ask):
    issuer.keys["curve"] = ec.generate_private_key(ec.SECP256R1())
    public = ONE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    # PyJWT itself does not sign with such a secret: it is signed by hand.
    head_and_body = unsigned(issuer, "HS256").rpartition(".")[0]
    signature = urlsafe_b64encode(hmac.digest(public, head_and_body.encode(), hashlib.sha256)).rstrip(b"=")
    for token in (
        f"{head_and_body}.{signature.decode()}",
        unsigned(issuer, "none"),
        unsigned(issuer, "None"),
    ):
        assert "`alg`" in refusal(ask(token))
    assert issuer.asked == [], "the issuer is not asked for what cannot be valid"
    assert "signature" in refusal(ask(unsigned(issuer, "RS256") + "AAAA"))
    assert "JWT" in refusal(ask("a.b.c"))
    # A key of another kind than the algorithm says.
    assert "signature" in refusal(ask(issuer.token("curve", key=TWO, tenant="default")))


def test_an_elliptic_key_is_one_too(issuer, ask):
    issuer.keys["curve"] = ec.generate_private_key(ec.SECP256R1())
    assert ask(issuer.token("curve", algorithm="ES256", tenant="default")).status_code == 200


def test_a_new_key_is_asked_for_and_an_old_one_ends(issuer, ask, clock):
    old = issuer.token(tenant="default")
    assert ask(old).status_code == 200
    issuer.keys = {"two": TWO}
    new = issuer.token("two", tenant="default")
    assert "`kid`" in refusal(ask(new)), "within the cooldown the issuer is not asked"
    asked = len(issuer.asked)
    for _ in range(5):
        ask(new)
    assert len(issuer.asked) == asked
    clock[0] += oidc.COOLDOWN_SECONDS
    assert ask(new).status_code == 200
    assert "`kid`" in refusal(ask(old))


@pytest.mark.parametrize("mode", ["down", "broken", "other", "moved"])
def test_while_the_issuer_is_down_only_its_tokens_wait(issuer, ask, clock, mode):
    issuer.mode = mode
    answer = ask(issuer.token(tenant="default"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10"), answer.text
    assert ask(None).status_code == 200, "a token of the server itself"
    asked = len(issuer.asked)
    assert ask(issuer.token(tenant="default")).status_code == 503
    assert len(issuer.asked) == asked
    issuer.mode = "up"
    clock[0] += oidc.COOLDOWN_SECONDS
    assert ask(issuer.token(tenant="default")).status_code == 200
    # Keys that are known hold for a while, and not for ever.
    issuer.mode = mode
    clock[0] += oidc.KEYS_SECONDS / 2
    assert ask(issuer.token(tenant="default")).status_code == 200
    clock[0] += oidc.KEYS_SECONDS
    assert ask(issuer.token(tenant="default")).status_code == 503


def test_a_silent_issuer_has_a_time_limit(issuer, ask, monkeypatch):
    monkeypatch.setattr(oidc, "TIMEOUT_SECONDS", 0.5)
    issuer.mode = "silent"
    begun = time.monotonic()
    assert ask(issuer.token(tenant="default")).status_code == 503
    assert time.monotonic() - begun < 2.5


def test_without_the_setting_no_jwt_is_valid_and_keys_come_by_tls(issuer, tmp_path, monkeypatch):
    write_installation(tmp_path)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    client = RestClient(new_service())
    headers = {"authorization": f"Bearer {issuer.token()}"}
    assert client.send("GET", "/v1/pipelines", headers=headers).status_code == 401
    assert Tokens(tmp_path).all()[0].has(Scope.ADMIN)
    for wrong in ("http://login.example.com", "https://user:password@login.example.com", "login"):
        write_installation(tmp_path, serve={"oidc": {"issuer": wrong, "audience": "x"}})
        with pytest.raises(SettingsError, match=r"serve\.oidc\.issuer"):
            load_settings()
