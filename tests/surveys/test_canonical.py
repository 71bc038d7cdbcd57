"""The canonical text covers everything by which a report is drawn or read.

The fault that this prevents: `stride` of local hashing changed the meaning of every report, and no fingerprint changed.
"""

import hashlib
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ldpstream.mechanisms import LONGITUDINAL, NAMES, NUMERIC, Mechanism
from ldpstream.mechanisms.devices import Coin, Odds, Parameters
from ldpstream.mechanisms.families.finite_field import FiniteField
from ldpstream.surveys import Survey, parse_survey
from tests.surveys.test_survey import DOCUMENT


def level(name: str, **keys: Any) -> dict[str, Any]:
    budget = {"eps_inf": 4.0, "eps_1": 2.0} if name in LONGITUDINAL else {"eps": 1.0}
    return {"name": "only", "mechanism": name} | budget | keys


def survey(name: str, k: int = 12, **keys: Any) -> Survey:
    return parse_survey(DOCUMENT | {"attribute": [{"name": "a", "size": k, "level": [level(name, **keys)]}]})


EVERY = [survey(name) for name in (*NAMES, *NUMERIC)]


def changed(value: Any) -> list[Any]:
    """Other values of a parameter."""
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value + 1]
        case str():
            return [value + "X"]
        case Odds():
            return [Odds(f"{int(value.numerator, 16) * 3:014x}", value.shift), Odds(value.numerator, value.shift - 1)]
        case None:
            return [7]
        case Coin():
            smaller = int(value.digits, 16) / 256 ** (len(value.digits) // 2)
            less = (int(0.999 * smaller * 2**56) * 1).to_bytes(7, "big").hex()
            return [Coin(less, value.inverted), *([Coin(value.digits, not value.inverted)] if smaller != 0.5 else [])]
        case FiniteField():
            return [replace(value, **{key: other}) for key in value.__struct_fields__ for other in changed(getattr(value, key))]
        case dict():
            return [value | {key: other} for key, inner in value.items() for other in changed(inner)]
        case _:
            return [tuple(changed(part)[0] if i == at else part for i, part in enumerate(value)) for at in range(len(value))]


def mutants(p: Parameters) -> list[tuple[str, Parameters]]:
    """Parameters that differ in one number, but not in a budget: the text has the budgets of the file, before `spl` divides
    them."""
    keys = [key for key in p.__struct_fields__ if key not in ("eps", "eps_inf", "eps_1", "every_steps", "lifetime_reports")]
    others = {"odds": [Odds("0a", 1)]} if p.odds is None else {}
    return [(key, replace(p, **{key: other})) for key in keys for other in others.get(key) or changed(getattr(p, key))]


@pytest.mark.parametrize("base", EVERY, ids=lambda base: base.mechanisms[0][0].name)
def test_each_parameter_of_a_device_changes_the_fingerprint(base: Survey, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {base.fingerprint}
    needed = base.mechanisms[0][0].parameters()
    for key, mutant in mutants(needed):
        with monkeypatch.context() as patched:
            patched.setattr(Mechanism, "parameters", lambda _, mutant=mutant: mutant)
            text = replace(base).canonical  # a copy: the text is cached
        fingerprint = hashlib.sha256(text.encode()).digest()[:8]
        assert fingerprint not in found, key
        found.add(fingerprint)
    assert len(found) > 5  # the control: at least five parameters were changed


def test_the_last_digits_of_a_probability_do_not_change_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine may compute a double that differs in its last bits."""
    base = EVERY[0]
    needed = base.mechanisms[0][0].parameters()
    [(name, coin)] = needed.coins["report"].items()
    near = Coin(f"{int(coin.digits, 16) + 1:0{len(coin.digits)}x}", coin.inverted)
    other = replace(needed, coins={"report": {name: near}})
    assert msgspec.to_builtins(other) != msgspec.to_builtins(needed)
    monkeypatch.setattr(Mechanism, "parameters", lambda _: other)
    assert replace(base).canonical == base.canonical  # a copy: the text is cached
