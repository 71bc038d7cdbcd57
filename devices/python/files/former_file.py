"""Converts a file of format 5 (a device) or 1003 (a wallet) to the present tables (`memo_file`).

Each survey had tables of its own in these formats. In a wallet, those of survey 3 had names such as ``survey_3_memo``.
The table `loss` had the loss of a report, and `moment` the time from which a report may leave. Tables that were never used
were missing.
"""

import sqlite3
from collections.abc import Sequence

OPTIONAL = {"consent": "pin, answers", "survey": "fingerprint", "loss": "survey, attribute, eps"}
OPTIONAL_OF_SURVEY = {"moment": "key, due_ms", "journal": "number, at_ms, survey, attribute, step, envelope, local, key"}


def convert(db: sqlite3.Connection, tables: Sequence[str], wallet: bool) -> None:
    """Moves everything into the present tables, which the statements `tables` make, in the present transaction."""
    for table, columns in OPTIONAL.items():
        db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
    enrolled = "SELECT number FROM survey WHERE reports IS NULL" if wallet else "SELECT 1 FROM survey"
    prefixes = {number: f"survey_{number}_" if wallet else "" for (number,) in db.execute(enrolled)}
    for prefix in prefixes.values():
        for table, columns in OPTIONAL_OF_SURVEY.items():
            db.execute(f"CREATE TABLE IF NOT EXISTS {prefix}{table} ({columns})")
    db.execute("DROP INDEX IF EXISTS enrolled")
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")]
    for name in names:
        db.execute(f"ALTER TABLE {name} RENAME TO former_{name}")
    for statement in tables:
        db.execute(statement)
    db.execute("INSERT INTO consent SELECT pin, answers FROM former_consent")
    pin = "lower(hex(fingerprint))"
    if wallet:
        db.execute("INSERT INTO budget SELECT per_window, window_s, for_ever FROM former_budget")
        charges = "adds_up, start_ms, step_ms, per_window, for_ever, reports, until_ms"
        db.execute(f"INSERT INTO survey SELECT number, {pin}, name, {charges} FROM former_survey")
    else:  # the file had no name of the survey, and has no charges
        db.execute(f"INSERT INTO survey SELECT 1, {pin}, substr({pin}, 1, 16), 0, 0, 0, 0, 0, NULL, NULL FROM former_survey")
    for number, prefix in prefixes.items():
        _move(db, number, f"former_{prefix}")
    for name in names:
        db.execute(f"DROP TABLE former_{name}")


def _move(db: sqlite3.Connection, number: int, prefix: str) -> None:
    eps = "ifnull((SELECT eps FROM former_loss WHERE survey = ?1 AND former_loss.attribute = e.attribute), 0)"
    choices = f"attribute, level, answers, function, fake, phase, {eps}, forgotten, reports"
    due_ms = f"ifnull((SELECT due_ms FROM {prefix}moment m WHERE m.key = s.key), 0)"
    left = "at_ms, attribute, step, envelope, local, key"
    for statement in (
        f"INSERT INTO enrolment SELECT ?1, {choices} FROM {prefix}enrolment e",
        f"INSERT INTO memo SELECT ?1, attribute, key, memo, reports FROM {prefix}memo",
        f"INSERT INTO sent SELECT ?1, attribute, step, envelope, key, {due_ms} FROM {prefix}sent s",
        f"INSERT INTO journal SELECT NULL, ?1, {left} FROM {prefix}journal ORDER BY number",
        f"UPDATE survey SET name = ifnull((SELECT survey FROM {prefix}journal), name) WHERE number = ?1",
    ):
        db.execute(statement, (number,))
