#!/usr/bin/env bash
# Before `kubectl apply -k`: makes the survey a copy of the demo survey (or of the one given) that starts now with steps
# of a minute, and tells the scaler its consumer group and topic. Needs the command `ldpstream`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
ldpstream rehearse "${1:-../../../../surveys/samples/demo.toml}" survey.toml --step-seconds 60
bash ../../name_group.sh "$PWD"
