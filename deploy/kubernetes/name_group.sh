#!/usr/bin/env bash
# Writes the consumer group and the topic of an overlay's survey.toml into the overlay's scaling.yaml:
#   name_group.sh OVERLAY
# Run this script after each change of the survey. The script needs the command `ldpstream`.
set -euo pipefail
cd "${1:?which overlay?}"
said=$(mktemp)
trap 'rm -f "$said"' EXIT
ldpstream check survey.toml --json "$said" >/dev/null
name=$(sed -E 's/.*"survey": ?"([^"]+)".*/\1/' "$said" | head -1)
fingerprint=$(sed -E 's/.*"fingerprint": ?"([0-9a-f]+)".*/\1/' "$said" | head -1)
sed -i -E "s/(consumerGroup:) .*/\1 ldpstream-$name-$fingerprint/; s/(topic:) .*/\1 ldpstream.$name.reports/" scaling.yaml
