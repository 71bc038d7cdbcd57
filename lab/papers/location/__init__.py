"""Location mechanisms of the papers. No survey uses them: they are not pure, and do not take an LDP ε."""

from collections.abc import Callable

from lab.papers.location.base import LocationMechanism
from lab.papers.location.geometric import PlanarGeometric, TruncatedGeometric
from lab.papers.location.shokri import Shokri

LOCATION: dict[str, Callable[..., LocationMechanism]] = {m.name: m for m in (TruncatedGeometric, PlanarGeometric, Shokri)}
