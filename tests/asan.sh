#!/bin/sh
# Build the extension modules with sanitizers in a copy of the tree, and run the tests of those modules in it.
# Leaks are not looked for: the interpreter keeps what it allocates until the end. Only Python's own output is captured
# (--capture=sys): what a sanitizer says goes to the terminal, and would be lost with the process that it ends.
set -eu
python=$(readlink -f "$(dirname "$1")")/$(basename "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
copy=$root/build/asan
rm -rf "$copy"
mkdir -p "$copy"
cd "$root"
git ls-files -z | xargs -0 cp --parents -P -t "$copy"
cd "$copy"
JETRAFT_ASAN=1 JETRAFT_BUILD=build/cython "$python" setup.py --quiet build_ext --inplace --parallel 2
libasan=$(cc -print-file-name=libasan.so)
libubsan=$(cc -print-file-name=libubsan.so)
ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
LD_PRELOAD="$libasan $libubsan" PYTHONPATH="$copy/src" PYTHONMALLOC=malloc \
    "$python" -m pytest -q -p no:cacheprovider --capture=sys --ignore=tests/store/model --timeout 600 \
    --ignore=tests/cluster/backup/test_over_the_wire.py \
    tests/api/plane tests/api/tls tests/api/websocket/test_frames.py tests/api/websocket/test_listeners.py tests/api/jetstream tests/raft tests/store \
    tests/cluster/streams tests/cluster/consumers tests/cluster/backup
