"""Answers of the API as data frames."""

from typing import TYPE_CHECKING
from urllib.request import urlopen

if TYPE_CHECKING:
    import polars as pl

TEXTS = ("label", "row_label", "column_label", "cohort", "before_cohort", "against", "interval_withheld")
NUMBERS = ("frequency", "standard_error", "low", "high", "difference", "difference_low", "difference_high", "before", "after")
WAIT_S = 60


def read(url: str) -> "pl.DataFrame":
    """Returns a CSV answer of the API as a Polars frame. Labels are texts, and times are in UTC.

    Args:
        url: of a CSV answer, or of a survey's page: then the overview, with a row for each attribute and value.

    Raises:
        ImportError: if Polars is not installed.
        OSError: if the server does not answer, or refuses the request.

    For example: `read("http://127.0.0.1:8080/api/v1/attributes/screen/series.csv?last=100")`.
    """
    import polars as pl  # an extra of the package

    path, _, query = url.partition("?")
    if not path.endswith(".csv"):
        url = f"{path.rstrip('/')}/api/v1/overview.csv?{query or 'top=100000'}"
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url must begin with http:// or https://, got {url!r}")
    types = dict.fromkeys(TEXTS, pl.String) | dict.fromkeys(NUMBERS, pl.Float64)
    with urlopen(url, timeout=WAIT_S) as answer:
        return pl.read_csv(answer.read(), schema_overrides=types, try_parse_dates=True, infer_schema_length=None)
