#!/bin/sh
# run.sh PYTHON INPUTS [TARGET...]: build the extension modules with coverage and the address sanitizer in a copy of the
# tree, and give every target so many inputs. Needs clang (Debian: apt-get install clang); the fuzzer itself is installed
# into the copy. The modules are linked without a runtime: it is the one that is preloaded.
set -eu
python=$(readlink -f "$(dirname "$1")")/$(basename "$1")
inputs=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
copy=$root/build/fuzz
command -v clang >/dev/null || { echo "jetraft: clang is missing: install it (Debian: apt-get install clang)"; exit 1; }
mkdir -p "$copy/found"
cd "$root"
git ls-files -z | xargs -0 cp -u --parents -P -t "$copy"
cd "$copy"
JETRAFT_FUZZ=1 CC=clang LDSHARED="clang -shared" JETRAFT_BUILD=build/cython \
    "$python" setup.py --quiet build_ext --inplace --parallel 2
test -e library/atheris || "$python" -m pip install --quiet --disable-pip-version-check --target library 'atheris>=3,<4'
export ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH="$copy/src:$copy:$copy/library"
fuzz() { LD_PRELOAD="$copy/library/asan_with_fuzzer.so" "$python" -m tests.fuzz "$@" 2>&1; }
test $# -gt 0 || set -- $(fuzz | grep -v ^INFO)
for target; do
    log=$copy/found/$target.log
    fuzz "$target" "-runs=$inputs" "-artifact_prefix=$copy/found/$target-" -print_final_stats=1 >"$log" || {
        cat "$log"
        echo "$target: a finding, see $copy/found"
        exit 1
    }
    grep -E "^Done|^stat::(peak_rss_mb|average_exec_per_sec)" "$log" | tr '\n' ' ' | sed "s/^/$target: /; s/\$/\n/"
done
