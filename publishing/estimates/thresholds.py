"""The thresholds at which the page, the API, the dashboards and the alerts warn."""

from typing import Final

FIT_LIMIT: Final = 6.0  # a larger |fit_z| has a chance of 2e-9, so the reports are forged or the survey is wrong
ALARM_CHANCE: Final = 5.7e-7  # limit of `drift_p`, `levels_p`, `agreement` and of growth: five standard errors on either side
GROWTH_PEOPLE: Final = 100  # with fewer people in a window, no growth of unlisted values: chance would cause too many
OVERDUE_MS: Final = 120_000  # how long an estimate may be late, in ms
LAG_LIMIT: Final = 10_000  # records in the log that are not counted yet
REJECTED_LIMIT: Final = 0.05  # share of the envelopes that the agents reject
CLIENT_LIMIT: Final = 0.05  # share of one client in the reports of an attribute and step
LOAD_LIMIT: Final = 0.5  # share of an estimator's time that the estimates of all its surveys take
