"""The preview of a report: its bytes, and what each part can reveal."""

from typing import NamedTuple

from ldpstream.device.consent.words import explained
from ldpstream.mechanisms.wording import plural
from ldpstream.surveys import Survey


class Preview(NamedTuple):
    """A report that would leave now.

    Attributes:
        silence: why it does not leave now: "already answered" by the gateway, or `Device.silence`; None if it leaves.
        example: true if the report is not made yet. Chance then draws another one when the device reports.
        envelope: the bytes; None if the device makes no report of this step. Never send an example: it is not counted.
    """

    survey: Survey
    attribute: str
    step: int
    silence: str | None
    example: bool
    envelope: bytes | None

    def __str__(self) -> str:
        """The preview in words: the bytes by their parts, and what each part can reveal."""
        head, envelope = f"{self.attribute}, step {self.step}", self.envelope
        if envelope is None:
            return f"{head}: nothing leaves ({self.silence})."
        kind = "an example, which chance draws anew" if self.example else "made, and the same until the step ends"
        leaves = "leaves at its random moment" if self.survey.relay else "leaves with the next attempt"
        now = f"nothing leaves now ({self.silence})" if self.silence else leaves
        lines = [f"{data.hex()}  {reveals}" for data, reveals in explained(self.survey, envelope)]
        sees = f"the {'relay' if self.survey.relay else 'gateway'} sees your network address"
        last = f"Beside it: a random key, drawn for this report alone; {sees}."
        return "\n".join([f"{head}: {plural(len(envelope), 'byte')}; {kind}; {now}.", *lines, last])
