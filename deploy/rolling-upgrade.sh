#!/bin/sh
# Puts the present image on one node after the other; each has to be current again before the next one stops. A node that
# does not run comes first: it is replaced at once, whatever the others are, because it serves nobody. So an upgrade to an
# image that ends at its start is taken back by the next one.
#   deploy/rolling-upgrade.sh [seconds to wait for each node, 300]
set -eu
cd "$(dirname "$0")"
wait_s=${1:-300}
if docker compose version >/dev/null 2>&1; then compose="docker compose"; else compose=docker-compose; fi

container() { $compose ps --all --quiet "$1"; }

# What the engine says of a node's container: running, restarting, exited, created, paused; missing.
state() {
    id=$(container "$1")
    test -n "$id" && docker inspect --format '{{.State.Status}}' "$id" || echo missing
}

# Why a node serves nobody; nothing when it does, or may soon. One that ends again and again runs for moments between.
broken() {
    status=$(state "$1")
    if [ "$status" != running ]; then
        echo "its container is $status"
        return
    fi
    case $(docker inspect --format '{{.RestartCount}} {{.State.Health.Status}}' "$(container "$1")" 2>/dev/null) in
    *" unhealthy") echo "it is unhealthy" ;;
    "0 "* | *" healthy") ;;
    *) echo "it was restarted and is not healthy since" ;;
    esac
}

replace() {
    echo "rolling upgrade: $1"
    $compose up --detach --no-deps --no-build "$1"
}

# Returns when all streams of the node are current; says why not.
ready() {
    end=$(($(date +%s) + wait_s))
    while :; do
        status=$(state "$1")
        if [ "$status" = running ]; then
            # A container can end between the two commands: what the engine says then is the reason as well.
            why=$(docker exec "$(container "$1")" python /opt/jetraft/healthcheck.py --ready 2>&1) && return
        else
            why="its container is $status"
        fi
        [ "$(date +%s)" -lt "$end" ] || break
        sleep 1
    done
    echo "rolling upgrade: $1 is not current after $wait_s s: $why" >&2
    echo "The nodes that follow were left alone. Its log: $compose -f deploy/docker-compose.yml logs $1" >&2
    echo "With an image that runs, the same command repairs it first." >&2
    exit 1
}

for node in n1 n2 n3; do
    why=$(broken "$node")
    if [ -n "$why" ]; then
        echo "rolling upgrade: $node comes first: $why"
        replace "$node"
    fi
done
for node in n1 n2 n3; do ready "$node"; done
for node in n1 n2 n3; do
    replace "$node"
    ready "$node"
done
echo "rolling upgrade: all nodes are current"
