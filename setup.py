"""Cython extension modules: every .pyx below the four folders is one extension of the same dotted name.

JETRAFT_EXT=pattern builds only the modules whose path contains the pattern; JETRAFT_DEBUG=1 turns on bounds checks
and no optimisation (`make build-debug`). Not line tracing: it makes functions without the GIL take it at their end, and
the writer threads, which hold a mutex then, would wait for a thread that waits for that mutex.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup

FOLDERS = ("api", "cluster", "raft", "store")
DEBUG = os.environ.get("JETRAFT_DEBUG") == "1"
SANITIZE = os.environ.get("JETRAFT_ASAN") == "1"
FUZZ = os.environ.get("JETRAFT_FUZZ") == "1"
USES_OPENSSL = ("_secure.pyx", "_merkle.pyx")  # beside those of tls


def extension(path: Path) -> Extension:
    """Describe the extension module of one .pyx file, named by its place below src/."""
    name = ".".join(path.with_suffix("").relative_to("src").parts)
    # What stands here follows CFLAGS on the command line and wins: a level that the builder asks for is left alone.
    is_level_given = "-O" in os.environ.get("CFLAGS", "")
    compile_args = ["-O0", "-g"] if DEBUG else ["-g0"] if is_level_given else ["-O2", "-g0"]
    link_args = []
    if SANITIZE:
        compile_args += ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-O1", "-g1"]
        link_args += ["-fsanitize=address,undefined"]
    if FUZZ:  # clang; what the instrumented code calls is in the library that is preloaded (tests/fuzz/run.sh)
        compile_args += ["-fsanitize=fuzzer-no-link,address", "-fno-omit-frame-pointer", "-O1", "-g1"]
    return Extension(
        name,
        [str(path)],
        extra_compile_args=[*compile_args, "-Wno-unreachable-code", "-Wno-unused-function", "-Wno-sign-compare"],
        extra_link_args=[*link_args, "-pthread"],
        libraries=["ssl", "crypto"] if path.parent.name == "tls" or path.name in USES_OPENSSL else [],
    )


def extensions() -> list[Extension]:
    """Find and translate the .pyx files that the pattern admits."""
    from Cython.Build import cythonize  # noqa: PLC0415  (a build requirement, absent when only metadata is asked for)

    pattern = os.environ.get("JETRAFT_EXT", "")
    roots = [Path("src/jetraft") / folder for folder in FOLDERS]
    paths = sorted(path for root in roots for path in root.glob("**/*.pyx") if pattern in str(path))
    if not paths and not pattern:
        sys.exit("jetraft: these sources have no .pyx files, so what would be built could not be imported")
    directives = {
        "language_level": 3,
        "boundscheck": DEBUG,
        "wraparound": False,
        "cdivision": True,
        "initializedcheck": DEBUG,
        "embedsignature": True,
        "freethreading_compatible": False,
    }
    return cythonize(
        [extension(path) for path in paths],
        compiler_directives=directives,
        include_path=["src"],
        build_dir=os.environ.get("JETRAFT_BUILD", "build/cython"),
        nthreads=0,
    )


def require_compiler() -> None:
    """Say in one line what is missing, instead of a page of build output."""
    compiler = os.environ.get("CC", "cc").split()[0]
    if not (shutil.which(compiler) or shutil.which("gcc")):
        sys.exit("jetraft: a C compiler is needed: install gcc (Debian: apt-get install gcc libc6-dev)")


def require_openssl() -> None:
    """The same for what TLS needs: headers of OpenSSL 3, found by the compiler that will want them."""
    compiler = os.environ.get("CC", "cc").split()
    program = b"#include <openssl/ssl.h>\n#if OPENSSL_VERSION_MAJOR < 3\n#error too old\n#endif\n"
    words = [*compiler, "-E", "-x", "c", "-"]
    done = subprocess.run(words, input=program, capture_output=True, check=False)  # noqa: S603  the builder's compiler
    if done.returncode:
        sys.exit(
            "jetraft: the headers of OpenSSL 3 are needed: install libssl-dev (Debian: apt-get install libssl-dev)"
        )


WANTS_BUILD = bool({"build_ext", "bdist_wheel", "editable_wheel", "build", "develop", "install"} & set(sys.argv))
if WANTS_BUILD:
    require_compiler()
    require_openssl()
setup(ext_modules=extensions() if WANTS_BUILD else [])
