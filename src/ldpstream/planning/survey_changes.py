"""The changes from one survey to another: keys, devices' budgets, and histories."""

from typing import Any

from rich.markup import escape
from rich.table import Column, Table

from ldpstream.mechanisms.claims.guessing import percent_up
from ldpstream.promises.device_chance import chance_of_both
from ldpstream.promises.filling import of_check
from ldpstream.promises.promise import nats
from ldpstream.promises.statements import loss_for_ever
from ldpstream.surveys import Survey
from ldpstream.surveys.differences import Difference
from ldpstream.surveys.life.lineage import join

LONGEST = 60  # characters of a value in the table


def differences_table(found: list[Difference]) -> Table:
    table = Table(*(Column(head, overflow="fold") for head in ("key", "old", "new", "new fingerprint")))
    for one in found:
        table.add_row(escape(one.key), *(_short(value) for value in _shown(one)), "yes" if one.fingerprint else "no")
    return table


def _shown(one: Difference) -> tuple[Any, Any]:
    if isinstance(one.old, list) and isinstance(one.new, list) and (before := set(one.old)) != (after := set(one.new)):
        gone, added = ([x for x in one.old if x not in after], [x for x in one.new if x not in before])
        return ("without " if gone else "") + ", ".join(map(str, gone)), ("with " if added else "") + ", ".join(map(str, added))
    return one.old, one.new


def _short(value: Any) -> str:
    text = "–" if value is None or value == "" else str(value)
    return escape(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


def devices(old: Survey, new: Survey, chances: dict[str, float]) -> list[str]:
    before, after, same = loss_for_ever(old), loss_for_ever(new), old.fingerprint == new.fingerprint
    return of_check("both", {
        "same": same, "old": old.fingerprint.hex(), "new": new.fingerprint.hex(), "before": nats(before), "after": nats(after),
        "together": nats(before + after), "twice": not same and old.name == new.name, "name": old.name,
        "chances": ", ".join(f"{name} at most {percent_up(chance)}" for name, chance in chances.items()),
    })  # fmt: skip


def chances(old: Survey, new: Survey) -> dict[str, float]:
    if old.fingerprint == new.fingerprint:
        return {}
    asked = {attribute.name for attribute in old.attributes}
    return {a.name: float(chance_of_both(old, new, a.name)) for a in new.attributes if a.name in asked}


def histories(old: Survey, new: Survey) -> dict[str, str]:
    if old.fingerprint == new.fingerprint:
        return {attribute.name: "goes on" for attribute in new.attributes}
    said = {}
    for attribute in new.attributes:
        found = join(old, new, attribute.name)
        said[attribute.name] = ("joined" if found.joined else "not joined") + (f": {found.reason}" if found.reason else "")
    names = {attribute.name for attribute in new.attributes}
    said |= {a.name: f"ends: {new.name} has no attribute {a.name}" for a in old.attributes if a.name not in names}
    if new.replaces != old.fingerprint.hex():
        said = {name: f'{how}; it needs replaces = "{old.fingerprint.hex()}"' if how.startswith("joined") else how
                for name, how in said.items()}  # fmt: skip
    return said
