"""The file of relay keys: its rotation loses no report, and a file that cannot be used changes nothing."""

import re
import stat
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldpstream.commands.cli import app
from ldpstream.device.relay.capsules import decode_configs, open_request, public_key, seal_request
from ldpstream.gateway.relay_keys import LEAD_S, PAUSE_S, RelayKeyError, RelayKeys, read_keys, rotate, told

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def test_a_rotation_loses_no_report(tmp_path: Path) -> None:
    """One gateway gets the new file at once, the other an hour later; a device uses for an hour what it was told."""
    path, lead, pause = tmp_path / "keys", timedelta(seconds=LEAD_S), timedelta(seconds=PAUSE_S)

    def sealed_for(keys: RelayKeys, when: datetime) -> tuple[int, bytes]:
        (config,) = decode_configs(keys.published(when.timestamp()))
        return config.key_id, seal_request(config, b"report")[0]

    rotate(path, NOW)
    slow = read_keys(path)
    for turn in range(1, 5):
        at = NOW + turn * pause
        rotate(path, at)
        quick = read_keys(path)
        told_late = [sealed_for(keys, at + lead - timedelta(seconds=1)) for keys in (quick, slow)]
        assert [number for number, _ in told_late] == [turn, turn]
        assert all(open_request(keys.private, sealed).message == b"report" for keys in (quick, slow) for _, sealed in told_late)
        slow = read_keys(path)
        number, sealed = sealed_for(slow, at + lead)
        assert number == turn + 1
        for one in (*told_late, (number, sealed)):
            assert open_request(slow.private, one[1]).message == b"report"
    assert sorted(slow.private) == [4, 5]


def test_keys_are_numbered_and_only_two_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first = rotate(path, NOW)
    second = rotate(path, NOW)  # no key is lost: at once
    assert [[key.id for key in document.keys] for document in (first, second)] == [[1], [2, 1]]
    with pytest.raises(RelayKeyError, match=r"keys: the last rotation was at 2026-01-05 00:00 UTC; .* 02:00 UTC"):
        rotate(path, NOW + timedelta(seconds=PAUSE_S - 1))
    third = rotate(path, NOW + timedelta(seconds=PAUSE_S))
    assert third.keys == [third.keys[0], second.keys[0]]
    assert len({key.private for document in (first, second, third) for key in document.keys}) == 3
    assert "publish it from 2026-01-05 03:00 UTC, and accept key 2 until" in told(third)[0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    path.write_text(path.read_text().replace('"id": 3', '"id": 255'))
    assert rotate(path, NOW + timedelta(days=1)).keys[0].id == 0


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"format": 2, "keys": []}', '{"format": 1, "keys": []}', '{"format": 1, "keys": [{"id": 1}]}', "\udcff"],
)
def test_another_file_is_refused_and_kept(text: str, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(text.encode(errors="surrogateescape"))
    for act in (read_keys, lambda path: rotate(path, NOW)):
        with pytest.raises(RelayKeyError, match="keys: is not a file of relay keys"):
            act(path)
    assert path.read_bytes() == text.encode(errors="surrogateescape")


def test_short_keys_are_refused_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    rotate(path, NOW)
    document = rotate(path, NOW)
    good = path.read_text()
    path.write_text(good.replace('="', '"', 1))
    with pytest.raises(RelayKeyError, match="not a file of relay keys") as caught:
        read_keys(path)
    assert not any(part in str(caught.value) for part in good.split('"') if len(part) > 30)
    assert all(repr(key.private) not in str(caught.value) for key in document.keys)
    with pytest.raises(RelayKeyError, match="cannot be read"):
        read_keys(tmp_path / "none")


def test_the_command_makes_and_replaces_a_key(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    said = [CliRunner().invoke(app, ["relay-key", str(path)]) for _ in range(3)]
    assert [done.exit_code for done in said[:2]] == [0, 0]
    assert "Key 1 made. Gateways use it once they have started with the file." in said[0].output
    (config,) = re.findall("^For the apps: (.*)$", said[0].output, re.M)
    ((number, public),) = decode_configs(b64decode(config))
    assert (number, public) == (1, public_key(read_keys(path).private[1]))
    assert "Key 2 made." in said[1].output
    assert isinstance(said[2].exception, RelayKeyError)  # the command line turns it into one line and status 2
    assert sorted(read_keys(path).private) == [1, 2]
    secret = path.read_text().split('"private": "')[1].split('"')[0]
    assert all(secret not in done.output for done in said)
    gone = CliRunner().invoke(app, ["relay-key", str(tmp_path / "none" / "keys")])
    assert isinstance(gone.exception, RelayKeyError)
    assert "cannot be written: No such file or directory" in str(gone.exception)
