"""The device survey: everything that a device needs to answer a survey, as JSON.

The gateway serves this document, with further keys, at ``GET /v1/surveys/FINGERPRINT``; ``ldpstream canonical SURVEY`` writes
it. The coins have exact probabilities, as hexadecimal digits. docs/reference/write_a_device.md explains the document to authors
of devices.

    {"name": "commute", "fingerprint": "…16 hexadecimal digits…", "pin": "…64 hexadecimal digits…",
     "canonical": "…the survey's canonical text…", "mechanisms": [[parameters of attribute 0 and level 0, …], …],
     "words": {"retention_steps": 1000, "purpose": "Plan bus lines.", …}}

A key that does not apply to a mechanism is absent. A device ignores keys that it does not know: later versions may add keys.
"""

import msgspec

from ldpstream.mechanisms.devices import Parameters


class Words(msgspec.Struct, frozen=True, omit_defaults=True):
    """The survey's own words for people, which are no part of the pin, and how long the service keeps the results, in steps."""

    retention_steps: int
    title: str | None = None
    description: str | None = None
    purpose: str | None = None
    owner: str | None = None
    contact: str | None = None


class DeviceSurvey(msgspec.Struct, frozen=True):
    """The document of a survey for devices.

    Attributes:
        name: the survey's name.
        fingerprint: the first 16 digits of `pin`.
        pin: the SHA-256 of `canonical` in UTF-8, as 64 lower-case hexadecimal digits. A device calculates it from `canonical`.
        canonical: the survey's canonical text (`Survey.canonical`).
        mechanisms: the parameters of every attribute and level, by their indices.
        words: what a device shows to the person who decides about consent.
    """

    name: str
    fingerprint: str
    pin: str
    canonical: str
    mechanisms: tuple[tuple[Parameters, ...], ...]
    words: Words
