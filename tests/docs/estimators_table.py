"""Writes the table of estimators in docs/reference/api.md from the catalogue: `python -m tests.docs.estimators_table`."""

import re
from pathlib import Path

from ldpstream.publishing.estimates.catalogue import ESTIMATORS

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
_HEAD = "| `estimator` | name | meaning | for | values | intervals, if the levels agree |\n|---|---|---|---|---|---|\n"
_TABLE = re.compile(f"(?<={re.escape(_HEAD)})(?:\\|.*\n)*")


def estimators_table() -> str:
    """Returns one row for each estimator."""
    return "".join(
        f"| `{row.name}` | {row.label} | {row.meaning} | {row.mechanisms} "
        f"| {'any number' if row.max_k is None else f'at most {row.max_k:,}'.replace(',', ' ')} | {row.intervals} |\n"
        for row in ESTIMATORS
    )


def written_table() -> str:
    """Returns the table's rows from the document."""
    (found,) = _TABLE.findall(DOCUMENT.read_text(encoding="utf-8"))
    return str(found)


def main() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(_TABLE.sub(lambda _: estimators_table(), text), encoding="utf-8")


if __name__ == "__main__":
    main()
