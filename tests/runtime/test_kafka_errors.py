"""Tests of the log handler that hears why a client of Kafka cannot connect."""

import logging
from threading import Event, Thread

from ldpstream.runtime.kafka_errors import hearing
from ldpstream.runtime.settings import Settings


def test_clients_that_connect_in_two_threads_leave_the_librarys_logger_as_it_was() -> None:
    library = logging.getLogger("kafka")
    before = library.level, library.propagate, list(library.handlers)
    first_hears, second_hears, first_ended = Event(), Event(), Event()

    def second() -> None:
        first_hears.wait(10)
        with hearing(Settings()):
            second_hears.set()
            first_ended.wait(10)

    thread = Thread(target=second)
    thread.start()
    with hearing(Settings()):
        first_hears.set()
        assert not second_hears.wait(0.3)
    first_ended.set()
    thread.join(10)
    assert second_hears.is_set()
    assert (library.level, library.propagate, library.handlers) == before
