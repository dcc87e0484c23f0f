"""Signatures of calls, as Standard Webhooks describes them.

The receiver computes HMAC-SHA256 over `<webhook-id>.<webhook-timestamp>.<body>` with the shared secret, and
compares. See https://www.standardwebhooks.com.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from etl_assets.errors import SettingsError

_PREFIX = "whsec_"


def signing_key(secret: str, *, label: str) -> bytes:
    """Return the key of a secret: `whsec_` and base64.

    Raises:
        SettingsError: the secret has another form. It is not shown.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not 16 <= len(key) <= 512:
        raise SettingsError(
            f"{label} is no secret of Standard Webhooks",
            fix="let it have `whsec_` and 24 to 64 random bytes in base64, as the receiver has it",
            field=label,
        )
    return key


def signature_headers(key: bytes, *, call_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign a call.

    Args:
        key: The shared key.
        call_id: Stays the same when the call is repeated.
        timestamp: Seconds since 1970 at which the call is sent.
        body: The body.
    """
    signed = b".".join((call_id.encode(), str(timestamp).encode(), body))
    digest = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return {
        "webhook-id": call_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{digest}",
    }
