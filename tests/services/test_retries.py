"""Retries through several gateways while processes are killed: every acknowledged report is counted exactly once."""

from tests.conftest import Figures

from .agent_site import MakeSite
from .retries import STEP_S, run
from .rig import KafkaNode, RedisNode

POSTS = 2500


def test_retries_through_several_gateways_count_once(
    kafka_node: KafkaNode, redis_node: RedisNode, make_site: MakeSite, figures: Figures
) -> None:
    """The control: the log itself has many envelopes more than once."""
    site = make_site(kafka_node.bootstrap, redis_node.url, STEP_S)
    done = run(site, kafka_node, redis_node, POSTS, every_s=(1.0, 3.0), seed=1)
    figures["retries through several gateways, real processes"] = done
    assert (done["lost"], done["doubled"], done["tables that differ"]) == (0, 0, 0), done
    assert done["repeated in the log"] > POSTS / 10
