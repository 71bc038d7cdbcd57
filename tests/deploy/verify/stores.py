"""A stand-in for the images of Kafka, Redis, Prometheus and a DNS server, where they cannot be pulled.

It has Debian's Redis, Java, Prometheus and dnsmasq, and the published jars of Kafka. Kafka reads the same variables as in its
own image, because the same program writes its settings.
"""

import shutil
import tempfile
from pathlib import Path

from deploy.local import kafka_jars
from deploy.local.cache import cache_dir
from tests.deploy.verify.engine import Engine

IMAGE = "ldpstream-verify-servers"
DOCKERFILE = """\
FROM {base}
RUN mkdir -p /usr/share/man/man1 && apt-get update -qq \\
 && apt-get install -y -qq --no-install-recommends redis-server redis-tools openjdk-17-jre-headless prometheus dnsmasq-base
RUN groupadd --gid 1000 appuser && useradd --uid 1000 --gid 1000 --create-home appuser
COPY libs /opt/kafka/libs
COPY run /run.sh
RUN mkdir -p /etc/kafka/docker /mnt/shared/config /opt/kafka/config /opt/kafka/logs /var/lib/kafka/data /data \\
 && chown -R 1000:1000 /opt/kafka/config /opt/kafka/logs /var/lib/kafka /data \\
 && touch /etc/kafka/docker/server.properties /etc/kafka/docker/log4j2.yaml /etc/kafka/docker/tools-log4j2.yaml
WORKDIR /data
CMD ["sh", "/run.sh"]
"""
RUN = """\
set -e
export CLUSTER_ID="${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}"
java -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \\
  --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config
exec java ${KAFKA_HEAP_OPTS:--Xmx1G -Xms1G} -cp '/opt/kafka/libs/*' kafka.Kafka /opt/kafka/config/server.properties
"""


def build(docker: Engine) -> None:
    """Builds the image, unless the engine has it.

    Raises:
        VerifyError: if the build fails.
        JarsError: if the jars of Kafka are not in the cache and cannot be fetched.
    """
    if docker.has(IMAGE):
        return
    with tempfile.TemporaryDirectory(dir=cache_dir()) as scratch:
        shutil.copytree(kafka_jars.fetch(), Path(scratch) / "libs")
        (Path(scratch) / "run").write_text(RUN)
        docker.build_text(IMAGE, DOCKERFILE.format(base=docker.stand_in()), Path(scratch))
