"""The canonical text of a survey: what devices and service must agree on, as JSON in the canonical form of RFC 8785.

The text has the number of its format, the resolved mechanism (never ``"auto"``), and the parameters that devices get
(`Mechanism.parameters`). Its budgets are those before ``spl`` divides them. The probabilities of the coins and the logarithm of
the odds have six significant digits, since machines may round the last digits of a double differently. Raise `FORMAT` if a key
of the text changes, or if reports change their meaning and the text does not.

A device must refuse a format that it does not know.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import rfc8785

from ldpstream.mechanisms.devices import Coin
from ldpstream.surveys.questions import Attribute, Level, Recipe

if TYPE_CHECKING:
    from ldpstream.mechanisms import Mechanism

FORMAT, RELAY_FORMAT, PAIR_FORMAT, SET_FORMAT, RECIPE_FORMAT = 3, 4, 5, 6, 7
# keys of a level that follow from the other keys
DERIVED = ("k", "row_bytes", "functions", "digits", "stride", "field", "coins", "log_odds")


def text(survey: dict[str, Any]) -> str:
    """The canonical text of the survey's keys, which include ``"attribute"``: the list of `attribute_keys`."""
    formats = {"recipe": RECIPE_FORMAT, "choices": SET_FORMAT, "pair": PAIR_FORMAT}
    found = [number for key, number in formats.items() if any(key in attribute for attribute in survey["attribute"])]
    number = max([*found, RELAY_FORMAT if "relay" in survey else FORMAT])
    return rfc8785.dumps({"format": number} | survey).decode()


def attribute_keys(attribute: Attribute, built: tuple[Mechanism, ...]) -> dict[str, Any]:
    """The canonical keys of an attribute and of its levels, whose mechanisms are `built`.

    `eps`, `eps_inf` and `eps_1` are those of the file, before ``spl`` divides them. `calibration` (``"exact"``), `every_steps`
    (1) and `lifetime_reports` (no limit) are left out if they have their default.
    """
    levels = [_level(level, m) for level, m in zip(attribute.levels, built, strict=True)]
    values = None if attribute.pair is not None else attribute.values
    domain: dict[str, Any] = {"values": values, "size": attribute.size, "bins": attribute.bins, "pair": attribute.pair}
    domain |= {"choices": attribute.most, "recipe": _recipe(attribute.recipe)}
    rest = {"unlisted": attribute.catch_all, "outside": "nearest" if attribute.nearest else None}
    return {"name": attribute.name, "level": levels} | _given(domain | rest)


def _recipe(recipe: Recipe | None) -> dict[str, Any] | None:
    if recipe is None:
        return None
    return _given(msgspec.to_builtins(recipe) | {"days": recipe.window_days if recipe.windowed else None})


def _level(level: Level, m: Mechanism) -> dict[str, Any]:
    stated = {
        "eps": level.eps,
        "eps_inf": level.eps_inf,
        "eps_1": level.eps_1,
        "calibration": None if level.calibration == "exact" else level.calibration,
        "every_steps": None if level.every_steps == 1 else level.every_steps,
        "lifetime_reports": level.lifetime_reports,
    }
    needed = m.parameters()
    rounds = {name: {key: _probability(coin) for key, coin in coins.items()} for name, coins in needed.coins.items()}
    exact = {"coins": rounds, "odds": None, "log_odds": _short(math.log1p(needed.odds.excess)) if needed.odds else None}
    return {"name": level.name} | _given(msgspec.to_builtins(needed) | exact | stated)


def _probability(coin: Coin) -> dict[str, float]:
    smaller = _short(int(coin.digits, 16) / 256 ** (len(coin.digits) // 2))
    return {"no" if coin.inverted and smaller != 0.5 else "yes": smaller}


def _short(number: float) -> float:
    return float(f"{number:.6g}")


def _given(keys: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not None}
