"""The jars of Apache Kafka, fetched once by Maven into a cache outside the source tree.

This module needs only Python's standard library:

    PYTHONPATH=src:. python3 -P -m deploy.local.kafka_jars      prints the folder, after fetching what is missing
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.local.cache import cache_dir

KAFKA_VERSION = "4.1.0"
LOG4J_VERSION = "2.24.3"  # the log4j version on which Kafka 4.1.0 depends

FETCH_S = 600  # longest time of the whole download

# Kafka logs through slf4j, but Kafka's published dependencies omit the binding to log4j. Without this binding, a failing
# broker logs nothing.
POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>ldpstream.local</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOG4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


class JarsError(RuntimeError):
    """The jars are not in the cache and could not be fetched."""


def jars_dir() -> Path:
    """Folder of the jars of `KAFKA_VERSION`, which may not exist yet."""
    return cache_dir() / f"kafka-{KAFKA_VERSION}"


def cached() -> bool:
    return jars_dir().is_dir()


def fetch() -> Path:
    """Fetches the jars, unless the cache has them.

    Returns:
        A folder of `*.jar`: the broker, its runtime dependencies and its log binding.

    Raises:
        JarsError: if Maven is not installed, fails, takes longer than `FETCH_S`, or the cache cannot be written.
    """
    target = jars_dir()
    if cached():
        return target
    mvn = shutil.which("mvn")
    if mvn is None:
        raise JarsError(f"no jars of Kafka {KAFKA_VERSION} in {target} and no Maven (mvn) on PATH to fetch them")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
            _copy_dependencies(mvn, Path(scratch))
            try:
                (Path(scratch) / "jars").rename(target)
            except OSError:
                if not cached():  # otherwise another process was first, and we use the jars of that process
                    raise
    except OSError as err:
        raise JarsError(f"cannot write the cache of Kafka {KAFKA_VERSION}: {err}") from err
    return target


def _copy_dependencies(mvn: str, scratch: Path) -> None:
    pom, jars = scratch / "pom.xml", scratch / "jars"
    pom.write_text(POM, encoding="utf-8")
    command = [mvn, "--batch-mode", "--quiet", "--file", str(pom), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired as err:
        raise JarsError(f"Maven did not fetch the jars of Kafka {KAFKA_VERSION} within {FETCH_S} s") from err
    if done.returncode != 0 or not (jars / f"kafka_2.13-{KAFKA_VERSION}.jar").is_file():
        said = (done.stdout + done.stderr).strip().splitlines() or ["it printed nothing"]
        reason = next((line for line in said if line.startswith("[ERROR]")), said[-1])  # Maven's later lines are advice
        failure = f"Maven could not fetch the jars of Kafka {KAFKA_VERSION} (exit code {done.returncode})"
        raise JarsError(f"{failure}: {reason.removeprefix('[ERROR]').strip()}")


def main() -> int:
    try:
        sys.stdout.write(f"{fetch()}\n")
    except JarsError as err:
        sys.stderr.write(f"kafka_jars: {err}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
