"""Messages of the Kafka library stay out of our log while several threads connect."""

import logging
from contextlib import ExitStack

from ldpstream.engines.kafka.clients import hearing
from ldpstream.runtime.settings import Settings


def test_the_library_stays_quiet_until_the_last_thread_has_ended() -> None:
    library, settings = logging.getLogger("kafka"), Settings.model_validate({})
    before = list(library.handlers)
    with ExitStack() as second:
        with hearing(settings) as first:
            other = second.enter_context(hearing(settings))
            library.warning("refused: %s", ValueError("SaslAuthenticationFailed"))
        assert (library.level, library.propagate) == (logging.WARNING, False)  # a lower level would show passwords
        assert library.handlers == [*before, other]
        library.warning("refused: %s", ValueError("later"))
    assert (library.propagate, list(library.handlers)) == (True, before)
    assert first.turned_away
    assert other.turned_away
    assert len(first._complaints) == 1
