#!/bin/sh
# Puts the present image on one node after the other; each has to be current again before the next one stops.
#   CLUSTER_SECRET_FILE=... deploy/rolling-upgrade.sh [seconds to wait for each node, 300]
set -eu
cd "$(dirname "$0")"
wait_s=${1:-300}
if docker compose version >/dev/null 2>&1; then compose="docker compose"; else compose=docker-compose; fi
export CLUSTER_SECRET_FILE="${CLUSTER_SECRET_FILE:-$PWD/cluster_secret}"

ready() {
    left=$wait_s
    until $compose exec -T "$1" python /opt/jetraft/healthcheck.py --ready; do
        left=$((left - 1))
        if [ "$left" -le 0 ]; then
            echo "rolling upgrade: $1 is not current after $wait_s s; the other nodes were left alone" >&2
            exit 1
        fi
        sleep 1
    done
}

for node in n1 n2 n3; do ready "$node"; done
for node in n1 n2 n3; do
    echo "rolling upgrade: $node"
    $compose up --detach --no-deps --no-build "$node"
    ready "$node"
done
