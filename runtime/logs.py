"""The log of a service's process: one JSON object a line on standard error."""

import logging
from logging.config import dictConfig
from typing import Any

import structlog

_NO_DEBUG = ("aiokafka", "kafka", "numba")


def start_log(level: str) -> None:
    """Configures the log."""
    dictConfig(logging_config(level))


def logging_config(level: str) -> dict[str, Any]:
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    libraries = "DEBUG" if level == "debug" else "WARNING"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": shared,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.JSONRenderer(ensure_ascii=False),
                ],
            }
        },
        "filters": {"seldom": {"()": _Seldom}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json", "filters": ["seldom"]}},
        "root": {"level": libraries, "handlers": ["stderr"]},
        # at DEBUG the Kafka clients would write whole requests, reports included, and numba hundreds of lines for each kernel
        "loggers": {
            "ldpstream": {"level": level.upper()},
            "ldpstream.agents": {"level": libraries},  # Faust names its loggers after our modules
            **{name: {"level": "WARNING"} for name in _NO_DEBUG},
        },
    }


class _Seldom(logging.Filter):
    """Log filter that passes each message of a Kafka client at most once in 10 s."""

    def __init__(self) -> None:
        super().__init__()
        self._said_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(("aiokafka", "kafka")):
            return True
        seldom = record.created - self._said_s.get(str(record.msg), 0.0) >= 10
        if seldom:
            self._said_s[str(record.msg)] = record.created
        return seldom
