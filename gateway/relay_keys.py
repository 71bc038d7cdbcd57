"""The gateway's keys for requests through a relay: their file and their rotation.

The file is one JSON document, `RelayKeyFile`. It holds a new key and at most one former key, and the gateway opens requests of
both. A gateway publishes a key that replaces another one only `LEAD_S` after its creation.
"""

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from pyhpke import KEMKeyInterface

from ldpstream.device.relay.capsules import KEY_BYTES, KeyConfig, encode_configs, load_key, new_private_key, public_key
from ldpstream.runtime.files import write_file
from ldpstream.surveys.errors import UserError

LEAD_S, PAUSE_S = 3600, 7200


class RelayKeyError(UserError):
    """A file of relay keys cannot be used."""


class RelayKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A key: its number in requests, the time of its creation, and its 32 private bytes, in base64."""

    id: Annotated[int, Meta(ge=0, le=255)]
    created: Annotated[datetime, Meta(tz=True)]
    private: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]


class RelayKeyFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The document of the file; the newest key comes first."""

    format: Literal[1]
    keys: Annotated[list[RelayKey], Meta(min_length=1, max_length=2)]


class RelayKeys:
    """The keys of a gateway."""

    def __init__(self, keys: list[RelayKey]) -> None:
        self.private: dict[int, KEMKeyInterface] = {key.id: load_key(key.private) for key in keys}
        self._created_s = keys[0].created.timestamp()
        self._newest, self._former = keys[0].id, keys[-1].id

    def published(self, now_s: float) -> bytes:
        """Returns the key configuration that devices should use at this time, as a document of type `KEYS_TYPE`.

        The document has one configuration: with several, a device's choice would help to identify it.
        """
        key_id = self._newest if now_s >= self._created_s + LEAD_S else self._former
        return encode_configs([KeyConfig(key_id, public_key(self.private[key_id]))])


def read_keys(path: Path) -> RelayKeys:
    return RelayKeys(_read(path).keys)


def rotate(path: Path, now: datetime) -> RelayKeyFile:
    """Makes a new key and writes it into the file; makes the file if there is none.

    Only the owner may read a new file; an existing file keeps its owner and rights. If anything fails, the file is as before.

    Raises:
        RelayKeyError: if the file is not a file of relay keys, cannot be written, or was rotated less than `PAUSE_S` ago.
    """
    former = _read(path).keys if path.exists() else []
    if len(former) > 1 and now < (again := former[0].created.astimezone(UTC) + timedelta(seconds=PAUSE_S)):
        at = _minute(again)
        raise RelayKeyError(f"{path}: the last rotation was at {_minute(former[0].created)}; rotate again at {at} or later")
    number = (former[0].id + 1) % 256 if former else 1
    made = RelayKey(number, now.astimezone(UTC).replace(microsecond=0), new_private_key())
    document = RelayKeyFile(1, [made, *former[:1]])
    try:
        write_file(path, msgspec.json.format(msgspec.json.encode(document)) + b"\n", mode=0o600)
    except OSError as error:
        raise RelayKeyError(f"{path}: cannot be written: {error.strerror}") from None
    return document


def told(document: RelayKeyFile) -> list[str]:
    """Returns lines on the keys of a file that `rotate` has just written, with the key configuration for devices."""
    made, former = document.keys[0], document.keys[1:]
    config = b64encode(encode_configs([KeyConfig(made.id, public_key(load_key(made.private)))])).decode()
    lines = [f"Key {made.id} made. Gateways use it once they have started with the file.", f"For the apps: {config}"]
    if former:
        at = _minute(made.created + timedelta(seconds=LEAD_S))
        lines[0] = f"Key {made.id} made. Gateways publish it from {at}, and accept key {former[0].id} until the next rotation."
    return lines


def _read(path: Path) -> RelayKeyFile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RelayKeyFile)
    except OSError as error:
        raise RelayKeyError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RelayKeyError(f"{path}: is not a file of relay keys; `ldpstream relay-key` makes one") from None


def _minute(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
