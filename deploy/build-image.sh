#!/bin/sh
# Builds one target of deploy/Dockerfile: [BASE=image] [NO_INDEX=1] deploy/build-image.sh server|spark NAME
# BASE and NO_INDEX are remembered in deploy/.build, so that an upgrade is built like what it replaces; an empty
# NO_INDEX= beside a BASE forgets it. A base that has a digest, because a registry gave it, is pinned by it: BASE=... again
# asks the registry again.
set -eu
cd "$(dirname "$0")/.."
target=$1 image=$2 remembered=deploy/.build default=python:3.11-slim-bookworm
base=${BASE:-} no_index=${NO_INDEX:-}
if [ -z "$base" ] && [ -e "$remembered" ]; then
    base=$(sed -n 's/^BASE=//p' "$remembered")
    no_index=${no_index:-$(sed -n 's/^NO_INDEX=//p' "$remembered")}
fi

case ${base:=$default} in
*@sha256:*) ;; # it is pinned
*)
    if docker pull --quiet "$base" >/dev/null 2>&1; then
        base=$(docker image inspect --format '{{index .RepoDigests 0}}' "$base")
        echo "the base is pinned: $base"
    elif ! docker image inspect "$base" >/dev/null 2>&1; then
        echo "make: no registry gives the base image $base, and it is not here." >&2
        echo "docs/containers.md#images says how to make one: make image BASE=debian-python:3.11 NO_INDEX=1" >&2
        exit 1
    fi
    ;;
esac
printf 'BASE=%s\nNO_INDEX=%s\n' "$base" "$no_index" >"$remembered"
docker build -f deploy/Dockerfile --target "$target" --build-arg "BASE=$base" --build-arg "PIP_NO_INDEX=$no_index" -t "$image" .
