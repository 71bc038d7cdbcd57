"""The commands for people who approve surveys: `sign` and `verify`."""

import sys
from base64 import b64encode
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.markup import escape

from ldpstream.commands.arguments import SurveyFile
from ldpstream.mechanisms.wording import plural
from ldpstream.output.outputs import JsonFile, write_json, write_output
from ldpstream.output.terminal import console, fail, say, table, tell

if TYPE_CHECKING:
    from ldpstream.planning.signing import Entry

app = typer.Typer()
VARIABLE = "LDPSTREAM_SIGNING_PASSPHRASE"
KeyFile = Annotated[Path, typer.Option("--key", metavar="FILE", help="private key: Ed25519, PEM")]


@app.command(name="sign")
def sign_command(
    survey_file: SurveyFile,
    key: KeyFile,
    signed_by: Annotated[
        list[str] | None, typer.Option("--signed-by", metavar="KEY", help="public key of earlier lines, besides that of --key")
    ] = None,
) -> None:
    """Sign a survey: show what changed, and append the signature to signatures.jsonl in the survey's folder."""
    from ldpstream.planning import signing
    from ldpstream.surveys.signatures import FILE
    from ldpstream.surveys.survey_file import read_survey

    others = _public(signed_by) if signed_by else []
    survey, toml = read_survey(survey_file)
    path = survey_file.parent / FILE
    lines = signing.read_file(path)
    owner = signing.load_key(key, partial(_passphrase, key))
    for number, signer in enumerate(signing.signers(lines, [owner.public_key().public_bytes_raw(), *others]), 1):
        if signer is None:  # the line has no verified survey to compare with
            fail(f"{path}: line {number} has no valid signature by {key}; if it is right, name its public key: --signed-by KEY")
    lines.append(signing.sign(survey, toml, lines, datetime.now(UTC), owner))
    *_, entry = signing.entries(lines)
    _show_changes(entry)
    write_output(path, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    tell(f"Signed {survey.name} with the pin {survey.pin}: line {len(lines)} of {path}.")
    tell(f"Public key: {signing.public_text(owner)}")


@app.command(name="verify")
def verify_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of survey files with signatures.jsonl")],
    signed_by: Annotated[list[str], typer.Option("--signed-by", metavar="KEY", help="public key; several are allowed")],
    json: JsonFile = None,
) -> None:
    """Check all signatures of a folder of surveys, and show the audit trail: what was signed when, and what changed."""
    from ldpstream.planning.signing import entries, read_file, signers, state_of
    from ldpstream.surveys import SurveyError
    from ldpstream.surveys.life.folder import survey_files
    from ldpstream.surveys.signatures import FILE, sha256
    from ldpstream.surveys.survey_file import read_survey

    if not folder.is_dir():
        fail(f"{folder}: is not a folder")
    lines = read_file(folder / FILE)
    by, trail = signers(lines, _public(signed_by)), []
    shown = table(None, "line", "signed (UTC)", "survey", "fingerprint", "key", "changed keys", texts=6)
    shown.columns[3].no_wrap = True  # people compare fingerprints
    for number, (entry, key) in enumerate(zip(entries(lines), by, strict=True), 1):
        stated, signer = entry.statement, None if key is None else b64encode(key).decode()
        changed = ", ".join(one.key for one in entry.changes)
        what = changed if entry.earlier else "first of its name" if entry.survey else "not readable by this version"
        at = f"{stated.signed.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        shown.add_row(str(number), at, escape(stated.survey), stated.fingerprint, (signer or "none")[:8], escape(what))
        changes = [one._asdict() for one in entry.changes]
        trail.append({"statement": stated, "signed_by": signer, "changes": changes})
    console.print(shown)
    wrong = [number for number, key in enumerate(by, 1) if key is None]
    valid, states, broken = [line for line, key in zip(lines, by, strict=True) if key], {}, {}
    for path in survey_files(folder):
        try:
            states[path.name] = state_of(*read_survey(path), valid)
        except SurveyError as error:
            broken[path.name] = str(error)
    for name, state in states.items():
        tell(f"{name}: {state}")
    last = sha256(lines[-1].statement) if lines else None
    if last is not None:
        tell(f"The trail has {plural(len(lines), 'line')}; the SHA-256 of its last statement is {last}.")
    write_json(json, {"trail": trail, "surveys": states, "broken": broken, "not_signed_by_the_keys": wrong, "last": last})
    for number in wrong:
        say(f"{folder / FILE}: line {number} has no valid signature by the given keys")
    for why in broken.values():
        say(why)
    if wrong or broken or any(state != "signed" for state in states.values()):
        raise typer.Exit(2)


def _show_changes(entry: "Entry") -> None:
    from ldpstream.planning.survey_changes import differences_table

    if entry.earlier is None:
        tell("The trail has no earlier survey of this name.")
        return
    earlier = f"{entry.earlier.name} with the fingerprint {entry.earlier.fingerprint.hex()}"
    tell(f"Changes since {earlier}:" if entry.changes else f"No key changed since {earlier}.")
    if entry.changes:
        console.print(differences_table(entry.changes))


def _public(signed_by: list[str]) -> list[bytes]:
    from ldpstream.surveys.signatures import public_keys

    try:
        return public_keys(signed_by)
    except ValueError as error:
        fail(f"--signed-by: {error}")


def _passphrase(file: Path) -> str:
    from ldpstream.runtime.settings import load_settings  # only here: this module loads slowly

    given = load_settings().signing_passphrase
    if given is not None:
        return given.get_secret_value()
    if not sys.stdin.isatty():
        fail(f"{file}: needs a passphrase: there is no terminal to ask at, and {VARIABLE} is not set")
    return str(typer.prompt(f"Passphrase of {file}", hide_input=True, err=True))
