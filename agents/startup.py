"""The start-up checks of an agent."""

import structlog

from ldpstream.engines.count_store import StoreRefused, StoreUnavailable
from ldpstream.engines.kafka.redis_connection import SharedClient
from ldpstream.engines.kafka.redis_store import RedisCountStore
from ldpstream.engines.kafka.topics import ensure_topics
from ldpstream.runtime.settings import Settings, SettingsError
from ldpstream.surveys import Survey
from ldpstream.surveys.life.keeper import SurveyKeeper

log = structlog.get_logger("ldpstream.agent")


def check_survey(settings: Settings, survey: Survey, group: str, client: SharedClient, keeper: SurveyKeeper) -> None:
    """Checks that a survey's topics and its part of Redis can be used. Creates missing topics.

    Raises:
        TopicError: if the broker or a topic cannot be used (the subclass BrokerUnreachable: if the broker is unreachable).
        StoreRefused, SettingsError: as for `check_redis`.
        OpenSurveyChanged, KeptUnreadable: as for `SurveyKeeper.check`.
    """
    ensure_topics(settings, survey, "agent", group)
    check_redis(RedisCountStore(survey, settings, client=client))
    keeper.check(survey, write=True)


def check_redis(store: RedisCountStore) -> None:
    """Checks that Redis grants our rights and does not evict counts. If Redis does not answer, only logs a warning.

    Raises:
        StoreRefused: if Redis denies the login or a right that we need.
        SettingsError: if Redis would evict counts when its memory is full.
    """
    try:
        store.check_counting()
        policy = store.evicts()
    except StoreRefused:
        raise
    except StoreUnavailable as error:
        log.warning("Redis does not answer; our rights and its eviction policy are not checked", error=str(error))
        return
    if policy is not None:
        raise SettingsError(
            f"LDPSTREAM_REDIS: this Redis evicts keys when its memory is full (maxmemory-policy {policy}); "
            "set maxmemory-policy to noeviction or to a volatile policy"
        )
