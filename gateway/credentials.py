"""The gateway's tokens, certificate and relay keys, from files that the gateway reads at its start."""

import ssl
from codecs import BOM_UTF8

from cryptography.x509 import load_pem_x509_certificate

from ldpstream.gateway import metrics
from ldpstream.gateway.relay_keys import RelayKeyError, RelayKeys, read_keys
from ldpstream.runtime.settings import Settings, SettingsError

MIN_TOKEN = 16
COLLECTOR = "collector"  # before the token of a collector, in the tokens file


def read_tokens(settings: Settings) -> tuple[list[str], list[str]]:
    """Returns the bearer tokens of devices and of collectors in the tokens file; none if the setting names no file.

    Raises:
        SettingsError: if the file cannot be read, is not ASCII or has no token; if a line is not a token of at least 16
            characters, or the word ``collector`` and such a token; or if two lines have the same token.
    """
    path = settings.gateway_tokens_file
    if path is None:
        return [], []
    try:
        text = path.read_bytes().removeprefix(BOM_UTF8).decode("ascii")
        lines = [line.split() for line in text.splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not ASCII"
        raise SettingsError(f"LDPSTREAM_GATEWAY_TOKENS_FILE: {path}: cannot be read: {reason}") from None
    words = [line[:-1] for line in lines]
    if (
        not lines
        or any(before not in ([], [COLLECTOR]) for before in words)
        or min(len(line[-1]) for line in lines) < MIN_TOKEN
    ):
        raise SettingsError(
            f"LDPSTREAM_GATEWAY_TOKENS_FILE: {path}: must hold a token of at least {MIN_TOKEN} characters on every line, "
            f"for a collector after the word {COLLECTOR!r}"
        )
    if len({line[-1] for line in lines}) < len(lines):
        raise SettingsError(f"LDPSTREAM_GATEWAY_TOKENS_FILE: {path}: must have each token on one line only, has one on several")
    return [line[-1] for line in lines if len(line) == 1], [line[-1] for line in lines if len(line) > 1]


def token_to_send(settings: Settings) -> str | None:
    """Returns the token that our own producers send: a collector's token if there is one."""
    devices, collectors = read_tokens(settings)
    return next(iter(collectors + devices), None)


def read_relay_keys(settings: Settings) -> RelayKeys | None:
    """Returns the keys for requests through a relay; None if the setting names no file."""
    if settings.gateway_relay_keys_file is None:
        return None
    try:
        return read_keys(settings.gateway_relay_keys_file)
    except RelayKeyError as error:
        raise SettingsError(f"LDPSTREAM_GATEWAY_RELAY_KEYS_FILE: {error}") from None


def check_certificate(settings: Settings) -> None:
    """Checks the certificate and its key, if there are any, and exports when the certificate ends.

    Raises:
        SettingsError: if the certificate or the key cannot be used, or only one of them is set.
    """
    cert, key = settings.gateway_tls_cert, settings.gateway_tls_key
    if cert is None and key is None:
        return
    if cert is None or key is None:
        raise SettingsError("LDPSTREAM_GATEWAY_TLS_CERT and LDPSTREAM_GATEWAY_TLS_KEY belong together")
    try:  # with an empty password, loading fails instead of asking
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
        metrics.certificate_ends.set(load_pem_x509_certificate(cert.read_bytes()).not_valid_after_utc.timestamp())
    except (OSError, ValueError) as error:
        raise SettingsError(f"LDPSTREAM_GATEWAY_TLS_CERT: {cert} and {key} cannot be used: {error}") from None
