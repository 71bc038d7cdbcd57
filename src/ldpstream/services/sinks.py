"""The way of simulated devices' reports: to Kafka, to a gateway, or through a relay to a gateway."""

from base64 import b64encode
from collections.abc import Callable

from ldpstream.device.routes import Direct, Relay, ThroughRelay
from ldpstream.gateway.credentials import token_to_send
from ldpstream.gateway.relay_keys import read_keys
from ldpstream.producers.gateway_sink import GatewaySink
from ldpstream.producers.sinks import Sink
from ldpstream.runtime.clock import now_ms
from ldpstream.runtime.settings import Settings
from ldpstream.surveys import Survey
from ldpstream.surveys.errors import UserError


class WayError(UserError):
    """Something that the way needs is missing or wrong."""


def sink_of(
    survey: Survey, settings: Settings, gateway: str | None, relay: str | None, wait: Callable[[float], bool],
    say: Callable[[str], None],
) -> Sink:  # fmt: skip
    """Opens the way of a survey's reports.

    Args:
        gateway: the gateway's URL; None for Kafka.
        relay: the URL of a relay before the gateway; None for no relay.
        wait, say: as for `await_kafka_sink`.

    Raises:
        WayError: if the relay has no gateway or no keys, or one of the URLs is malformed.
    """
    if relay is not None and gateway is None:
        raise WayError("--relay needs --gateway: the gateway behind the relay")
    if gateway is None:
        from ldpstream.producers.kafka_sink import await_kafka_sink  # only here: the client of Kafka loads slowly

        return await_kafka_sink(survey, settings, wait, say)
    token = token_to_send(settings)
    if relay is not None:
        return GatewaySink(ThroughRelay(relay_of(relay, gateway, settings), survey, token), f"relay at {relay}")
    try:
        return GatewaySink(Direct(gateway, token), f"gateway at {gateway}")
    except ValueError as error:
        raise WayError(str(error)) from None


def relay_of(url: str, gateway: str, settings: Settings) -> Relay:
    """Returns a relay, with the gateway's present key from the file of relay keys."""
    if settings.gateway_relay_keys_file is None:
        raise WayError("--relay needs LDPSTREAM_GATEWAY_RELAY_KEYS_FILE: the gateway's file of relay keys")
    keys = b64encode(read_keys(settings.gateway_relay_keys_file).published(now_ms() / 1000)).decode()
    try:
        return Relay(url, gateway=gateway, keys=keys)
    except ValueError as error:
        raise WayError(str(error)) from None
