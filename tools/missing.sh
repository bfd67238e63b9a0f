#!/bin/sh
# Says in one line, which can be pasted, what this machine lacks to build jetraft; nothing when all is there. make setup runs it.
# usage: missing.sh PYTHON
python=$1
lacks=""

lack() { # what, its package of Debian
	case " $lacks " in *" $1 "*) ;; *) lacks="$lacks $1" ;; esac
}
if ! command -v "$python" >/dev/null; then
	lack python3
	lack python3-venv
	lack python3-dev
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
	echo "jetraft: Python 3.11 or later is needed, $python is $("$python" -c 'import platform; print(platform.python_version())')" >&2
	exit 1
else
	"$python" -c 'import ensurepip, venv' 2>/dev/null || lack python3-venv
	"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || lack python3-dev
fi
compiler=${CC:-$(command -v cc || command -v gcc || true)}
if [ -z "$compiler" ] || ! command -v "${compiler%% *}" >/dev/null; then
	lack gcc
	lack libc6-dev
	lack libssl-dev
else
	for header in stdlib.h:libc6-dev openssl/ssl.h:libssl-dev; do
		echo "#include <${header%%:*}>" | $compiler -E -x c - >/dev/null 2>&1 || lack "${header#*:}"
	done
fi
[ -z "$lacks" ] && exit 0
echo "jetraft: this machine lacks$lacks; Debian: apt-get install -y$lacks" >&2
exit 1
