"""Detects a foreign package that shadows one of ldpstream's packages. Other distributions may use the same plain names."""

from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("mechanisms", "surveys", "runtime", "stores", "producers", "agents", "estimators", "experiments")


def shadowed() -> str | None:
    """Returns one line that names the first foreign package; None if there is none."""
    home = Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        spec = find_spec(name)
        origin = spec.origin if spec else None
        if origin is None or Path(origin).resolve().parent.parent != home:
            return f"the package {name!r} is {origin or 'missing'}, not ldpstream's in {home}: use a clean virtual environment"
    return None
