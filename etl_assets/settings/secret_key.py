"""Encryption of secrets that came over REST, by keys of the environment.

`ETL_ASSETS_SECRET_KEY` has Fernet keys, separated by commas. The first one encrypts and all of them decrypt,
so a key is replaced by putting a new one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from etl_assets import environment
from etl_assets.errors import RuntimeMissing, SettingsError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

_FIELD = environment.SECRET_KEY.name
NEW_KEY = "python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'"
"""Command that prints a new key."""


def encrypted(secret: str, environ: Mapping[str, str] | None = None) -> str:
    """Return a secret encrypted, as URL-safe text.

    Raises:
        SettingsError: there is no key, or what is set is none.
    """
    return _keys(environ).encrypt(secret.encode()).decode("ascii")


def decrypted(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Return an encrypted secret.

    Raises:
        SettingsError: there is no key, or none that it was encrypted with.
    """
    from cryptography.fernet import InvalidToken

    keys = _keys(environ)
    try:
        return keys.decrypt(text.encode()).decode()
    except InvalidToken:
        raise SettingsError(
            f"an encrypted secret of a connection cannot be decrypted by the keys of {_FIELD}",
            fix=f"add the key that it was encrypted with to the end of {_FIELD}, or define the connection"
            f" again",
            field=_FIELD,
        ) from None


def _keys(environ: Mapping[str, str] | None) -> MultiFernet:
    try:
        from cryptography.fernet import Fernet, MultiFernet
    except ImportError as error:
        raise RuntimeMissing(
            "the package cryptography is not installed", fix="pip install 'etl-assets[serve]'"
        ) from error
    given = environment.SECRET_KEY.read(environ)
    if given is None:
        raise SettingsError(
            f"{_FIELD} is not set, which encrypts the secrets of connections over REST",
            fix=f"set it, the same for all processes, to what `{NEW_KEY}` prints",
            field=_FIELD,
        )
    try:
        return MultiFernet([Fernet(each.strip()) for each in given.split(",")])
    except ValueError:
        # The words of the library may have a part of the key.
        raise SettingsError(
            f"{_FIELD} is no key: each has 32 bytes as URL-safe base64",
            fix=f"set it to what `{NEW_KEY}` prints",
            field=_FIELD,
        ) from None
