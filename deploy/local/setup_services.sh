#!/usr/bin/env bash
# Installs missing programs that the service tests need: redis-server, a Java runtime, Maven, Prometheus, nginx, Chromium and
# npm. Also downloads Kafka's jars, the manifest checkers and Grafana's panel components (into the cache folder that runtime/files.py
# names). Does not install kubectl. If an installation fails, the script prints one line and succeeds, and the tests are skipped.
# If CI is set, the script fails, and so do the tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly least_java=17
readonly policy=/usr/sbin/policy-rc.d
python=$(command -v python3 || command -v python)
export PYTHONPATH=src:. PYTHONSAFEPATH=1 # finds ldpstream before it is installed

give_up() {
    if [[ -n ${CI:-} ]]; then
        echo "setup_services: $1; the service tests need it" >&2
        exit 1
    fi
    echo "setup_services: $1; the service tests will be skipped" >&2
    exit 0
}

has() {
    command -v "$1" >/dev/null
}

has_java() {
    local version='version "([0-9]+)'
    [[ $("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1) =~ $version ]] && ((BASH_REMATCH[1] >= least_java))
}

# Without Maven the script succeeds only if the cache already has the jars.
has_jars() {
    "$python" -m deploy.local.kafka_jars >/dev/null 2>&1
}

# Debian starts an installed service; the tests start their own service, so the package's service must stay off.
install() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update --quiet --quiet || return 1
    if [[ ! -e $policy ]]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    fi
    apt-get install --yes --quiet --quiet --no-install-recommends "$@" || return 1
    if has systemctl; then
        for service in redis-server prometheus nginx; do
            [[ " $* " != *" $service "* ]] || systemctl disable --quiet "$service" || true # also after a reboot
        done
    fi
}

packages=()
has redis-server || packages+=(redis-server)
has_java || packages+=("openjdk-$least_java-jre-headless")
has mvn || has_jars || packages+=(maven)
has promtool || packages+=(prometheus)
has npm || packages+=(nodejs npm)
has nginx || packages+=(nginx)
has chromium || packages+=(chromium fonts-dejavu-core)

if ((${#packages[@]})); then
    if [[ $(id -u) != 0 ]] || ! has apt-get; then
        give_up "missing ${packages[*]} (install them, or run this as root on Debian or Ubuntu)"
    fi
    install "${packages[@]}" || give_up "apt-get could not install ${packages[*]}"
fi
has_java || give_up "the java found is older than $least_java (see JAVA_HOME)"
jars=$("$python" -m deploy.local.kafka_jars) || give_up "the jars of Kafka could not be fetched"
"$python" -m tests.deploy.tools || give_up "the checkers of manifests and dashboards could not be fetched"
echo "setup_services: ready ($(redis-server --version | cut -d' ' -f1-3), Kafka's jars in $jars)"
