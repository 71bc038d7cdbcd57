"""The commands `sign` and `verify`: keys, the chain of signatures, and one line for each mistake."""

import base64
import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from ldpstream.device.device import Device
from ldpstream.planning.signing import public_text
from ldpstream.surveys import load_survey
from ldpstream.surveys.signatures import sha256

from .conftest import Ran, RunCommand

SAMPLE = Path(__file__).parents[2] / "surveys" / "samples" / "demo.toml"
PASSPHRASE = "a passphrase for tests"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, run_command: RunCommand) -> RunCommand:
    monkeypatch.setenv("LDPSTREAM_SIGNING_PASSPHRASE", PASSPHRASE)
    return run_command


def make_key(path: Path) -> str:
    """Writes an encrypted private key, as OpenSSL does, and returns its public key."""
    key, secret = Ed25519PrivateKey.generate(), BestAvailableEncryption(PASSPHRASE.encode())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    return public_text(key)


class Office:
    """A folder with one survey, and a key."""

    def __init__(self, folder: Path, command: RunCommand) -> None:
        self.command, self.key, self.folder = command, folder / "officer.pem", folder / "surveys"
        self.folder.mkdir()
        self.file, self.trail = self.folder / "demo.toml", self.folder / "signatures.jsonl"
        shutil.copy(SAMPLE, self.file)
        self.public = make_key(self.key)

    def change(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def sign(self) -> str:
        status, out, err = self.command("sign", self.file, "--key", self.key)
        assert (status, err) == (0, [])
        return out

    def verify(self, *keys: str) -> Ran:
        return self.command("verify", self.folder, *(f"--signed-by={key}" for key in keys or (self.public,)))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.trail.read_text().splitlines()]

    def write(self, lines: list[dict[str, Any]]) -> None:
        self.trail.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def office(tmp_path: Path, command: RunCommand) -> Office:
    return Office(tmp_path, command)


def test_a_signed_survey_is_one_that_a_device_answers(office: Office, tmp_path: Path) -> None:
    assert office.public in office.sign()
    Device(load_survey(office.file), tmp_path / "device", signed_by=office.public, signature=office.trail.read_text())
    status, out, err = office.verify()
    assert (status, err) == (0, [])
    assert "demo.toml: signed" in out


def test_each_signature_names_the_previous_and_the_trail_shows_what_changed(office: Office, tmp_path: Path) -> None:
    office.sign()
    office.change("lateness_steps = 1", "lateness_steps = 2")
    assert "demo.toml: not signed" in office.verify()[1]
    assert "lateness_steps" in office.sign()
    office.change("lateness_steps = 2", 'lateness_steps = 2\npurpose = "Traffic"')
    status, out, _ = office.verify()
    assert (status, "demo.toml: signed for devices, but" in out) == (2, True)
    office.sign()
    first, second, third = (line["statement"] for line in office.lines())
    assert [json.loads(text)["previous"] for text in (first, second, third)] == [None, sha256(first), sha256(second)]
    out_file = tmp_path / "out.json"
    status, out, err = office.command("verify", office.folder, "--signed-by", office.public, "--json", out_file)
    assert (status, err) == (0, [])
    document = json.loads(out_file.read_text())
    assert [[one["key"] for one in entry["changes"]] for entry in document["trail"]] == [[], ["lateness_steps"], ["purpose"]]
    assert (document["surveys"], document["last"]) == ({"demo.toml": "signed"}, sha256(third))
    assert sha256(third) in out


def test_openssl_makes_a_key_and_verifies_a_signature(office: Office, tmp_path: Path) -> None:
    """Another program agrees, with the public key that the command printed."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("no openssl")
    make = ["genpkey", "-algorithm", "ed25519", "-aes-256-cbc", "-pass", f"pass:{PASSPHRASE}", "-out", str(office.key)]
    subprocess.run([openssl, *make], capture_output=True, check=True)
    printed = office.sign().rpartition("Public key: ")[2].strip()
    show = ["pkey", "-in", str(office.key), "-passin", f"pass:{PASSPHRASE}", "-pubout", "-outform", "DER"]
    der = subprocess.run([openssl, *show], capture_output=True, check=True).stdout
    assert base64.b64encode(der[-32:]).decode() == printed  # as docs/howto/sign.md prints it, before the first signature
    (line,) = office.lines()
    for name, content in [
        ("key", der), ("message", line["statement"].encode()), ("changed", line["statement"].encode() + b" "),
        ("signature", base64.b64decode(line["signature"])),
    ]:  # fmt: skip
        (tmp_path / name).write_bytes(content)
    for message, verified in (("message", True), ("changed", False)):
        arguments = ["-verify", "-pubin", "-keyform", "DER", "-inkey", "key", "-rawin", "-in", message, "-sigfile", "signature"]
        done = subprocess.run([openssl, "pkeyutl", *arguments], cwd=tmp_path, capture_output=True, check=False)
        assert (done.returncode == 0) is verified, done.stderr


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: lines[1:], "line 1 does not follow the previous line"),
        (lambda lines: [lines[0], lines[2]], "line 2 does not follow the previous line"),
        (lambda lines: [lines[1], lines[0], lines[2]], "line 1 does not follow"),
        (lambda lines: [lines[0] | {"toml": "another"}, *lines[1:]], "line 1 is not about the survey's text beside it"),
        (lambda lines: [{"statement": 1}, *lines], "line 1 of the signatures is not a signature"),
    ],
)
def test_a_changed_trail_is_one_line_and_cannot_be_continued(office: Office, damage: Any, said: str) -> None:
    for _ in range(3):
        office.sign()
    office.write(damage(office.lines()))
    before = office.trail.read_text()
    for status, _, err in (office.verify(), office.command("sign", office.file, "--key", office.key)):
        assert status == 2
        assert len(err) == 1
        assert said in err[0]
    assert office.trail.read_text() == before


def test_a_line_by_another_key_is_named(office: Office, tmp_path: Path) -> None:
    office.sign()
    office.change("lateness_steps = 1", "lateness_steps = 2")
    other = make_key(tmp_path / "other.pem")
    sign = ("sign", office.file, "--key", tmp_path / "other.pem")
    status, _, (refused,) = office.command(*sign)  # the command compares only with a line whose key it has
    assert (status, "line 1 has no valid signature by" in refused) == (2, True)
    assert "lateness_steps" in office.command(*sign, "--signed-by", office.public)[1]
    status, out, err = office.verify()
    assert (status, err) == (2, [f"ldpstream: {office.trail}: line 2 has no valid signature by the given keys"])
    assert "demo.toml: not signed" in out
    status, out, _ = office.verify(office.public, other)
    assert (status, office.public[:8] in out, other[:8] in out) == (0, True, True)


def test_an_earlier_survey_that_was_put_back_is_not_the_signed_one(office: Office) -> None:
    assert "no earlier survey" in office.sign()
    assert "No key changed since demo with the fingerprint" in office.sign()
    office.change("lateness_steps = 1", "lateness_steps = 2")
    office.sign()
    later = load_survey(office.file).fingerprint.hex()
    office.change("lateness_steps = 2", "lateness_steps = 1")
    status, out, _ = office.verify()
    assert (status, f"demo.toml: signed earlier, but a later survey of this name is signed: {later}" in out) == (2, True)
    office.sign()
    assert office.verify()[0] == 0


def test_each_mistake_is_one_line(office: Office, tmp_path: Path, command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, said in [
        (("sign", office.file, "--key", SAMPLE), "not an Ed25519 private key"),
        (("sign", office.file, "--key", tmp_path / "none"), "none: No such file"),
        (("sign", tmp_path / "none.toml", "--key", office.key), "cannot be read"),
        (("verify", office.file, "--signed-by", office.public), "is not a folder"),
        (("verify", office.folder, "--signed-by", "short"), "--signed-by: a public key must have 44 characters of base64"),
    ]:
        status, _, err = command(*arguments)
        assert (status, len(err)) == (2, 1), err
        assert said in err[0]
    (office.folder / "\udcff.toml").touch()  # the name has a byte that is not UTF-8
    status, _, err = command("verify", office.folder, "--signed-by", office.public, "--json", tmp_path / "out.json")
    assert (status, len(err), "cannot be written: not UTF-8: " in err[0]) == (2, 1, True)
    monkeypatch.setenv("LDPSTREAM_SIGNING_PASSPHRASE", "another passphrase")
    status, _, err = command("sign", office.file, "--key", office.key)
    assert (status, "the passphrase is wrong" in err[0], "another" in err[0]) == (2, True, False)
    monkeypatch.setenv("LDPSTREAM_SIGNING_PASSPHRASE", f"{PASSPHRASE}\udcff")
    sign = ("sign", office.file, "--key", office.key)
    assert command(*sign)[2] == ["ldpstream: LDPSTREAM_SIGNING_PASSPHRASE: is not text in UTF-8"]
    monkeypatch.delenv("LDPSTREAM_SIGNING_PASSPHRASE")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert "needs a passphrase" in command(*sign)[2][0]
    assert not office.trail.exists()
