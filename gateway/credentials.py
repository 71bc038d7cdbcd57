"""The gateway's tokens, certificate and relay keys, from files that may change while the gateway runs."""

import asyncio
import ssl
from codecs import BOM_UTF8
from pathlib import Path

import structlog

from ldpstream.gateway.admission import Tokens
from ldpstream.gateway.intake import Intake
from ldpstream.gateway.relay_keys import RelayKeyError, RelayKeys, read_keys
from ldpstream.runtime.settings import Settings, SettingsError
from ldpstream.surveys.life.folder import Stamp, stamp_of

log = structlog.get_logger("ldpstream.gateway")

LOOK_S = 1.0  # time between two looks
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


def load_certificate(settings: Settings, context: ssl.SSLContext | None = None) -> None:
    """Checks the certificate and its key, then lets `context` use them for new connections. Does nothing without a certificate.

    Raises:
        SettingsError: if the certificate or the key cannot be used, or only one of them is set.
    """
    cert, key = settings.gateway_tls_cert, settings.gateway_tls_key
    if cert is None and key is None:
        return
    if cert is None or key is None:
        raise SettingsError("LDPSTREAM_GATEWAY_TLS_CERT and LDPSTREAM_GATEWAY_TLS_KEY belong together")
    # A context keeps one certificate for each type of key. After a failed load, a certificate may have the key of another.
    # Therefore each load makes a fresh context for new connections.
    fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        fresh.load_cert_chain(cert, key, password=lambda: "")  # with an empty password, loading fails instead of asking
    except (OSError, ValueError) as error:
        raise SettingsError(f"LDPSTREAM_GATEWAY_TLS_CERT: {cert} and {key} cannot be used: {error}") from None

    def hand_over(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = fresh

    if context is not None:
        context.sni_callback = hand_over  # OpenSSL calls it for every connection, also without a server name


class Credentials:
    """The tokens, the certificate and the relay keys.

    If a changed file cannot be used, the gateway logs an error and continues with the last good content.

    Raises:
        SettingsError: if the tokens, the certificate or the relay keys cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        paths = (
            settings.gateway_tokens_file, settings.gateway_tls_cert, settings.gateway_tls_key, settings.gateway_relay_keys_file
        )  # fmt: skip
        self._paths = [path for path in paths if path is not None]
        self._seen = self._used = [_stamp(path) for path in self._paths]
        self._refused = list[str]()
        self.tokens, self.collectors = read_tokens(settings)
        self.relay_keys = read_relay_keys(settings)
        load_certificate(settings)

    async def follow(self, intake: Intake, context: ssl.SSLContext | None) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look(intake, context)

    def look(self, intake: Intake, context: ssl.SSLContext | None) -> None:
        """Uses the files again once two looks have found the same change."""
        before, self._seen = self._seen, [_stamp(path) for path in self._paths]
        if self._seen != before or self._seen == self._used:
            self._refused = []
            return
        refused = list[str]()
        for use in (self._use_tokens, self._use_relay_keys, lambda _: load_certificate(self._settings, context)):
            try:
                use(intake)
            except SettingsError as error:
                refused.append(str(error))
        if not refused:
            self._used = self._seen
            log.info("credentials changed", tokens=len(self.tokens), collectors=len(self.collectors))
        for reason in refused:
            if reason not in self._refused:
                log.error("credentials not changed", error=reason)
        self._refused = refused

    def _use_tokens(self, intake: Intake) -> None:
        self.tokens, self.collectors = read_tokens(self._settings)
        intake.tokens = Tokens(self.tokens, self.collectors)

    def _use_relay_keys(self, intake: Intake) -> None:
        intake.relay_keys = self.relay_keys = read_relay_keys(self._settings)


def _stamp(path: Path) -> Stamp | None:
    try:
        return stamp_of(path)
    except OSError:
        return None
