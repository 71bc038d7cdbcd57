"""The device survey: everything that a device needs to answer a survey, as JSON.

The gateway serves this document at ``GET /v1/survey``, and ``ldpstream canonical SURVEY`` writes it. The coins have exact
probabilities, as hexadecimal digits. So a device needs no floating-point number to draw a report. docs/write_a_device.md
explains the document to authors of devices.

    {"name": "commute", "fingerprint": "…16 hexadecimal digits…", "canonical": "…the survey's canonical text…",
     "mechanisms": [[parameters of attribute 0 and level 0, …], …]}

A key whose value does not apply to a mechanism is absent. New keys may be added; a device ignores keys that it does not know.
"""

import msgspec

from ldpstream.mechanisms.devices import Parameters


class DeviceSurvey(msgspec.Struct, frozen=True):
    """The document of a survey for devices; see the module's docstring.

    Attributes:
        name: the survey's name.
        fingerprint: the first 8 bytes of the SHA-256 of `canonical` in UTF-8, as lower-case hexadecimal digits.
        canonical: the survey as JSON in the canonical form of RFC 8785.
        mechanisms: the parameters of every attribute and level, by their indices.
    """

    name: str
    fingerprint: str
    canonical: str
    mechanisms: tuple[tuple[Parameters, ...], ...]
