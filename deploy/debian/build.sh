#!/bin/sh
# Builds dist/jetraft_VERSION_ARCH.deb from a wheel: `make deb`, or build.sh WHEEL DIRECTORY.
#
# The package has all it needs beside Python: the packages of deploy/requirements/server.txt, by hash, in a directory of its
# own (/usr/lib/jetraft), so nothing is fetched where it is installed. Compiled modules fit one minor version of Python:
# build with the Python of the release that the package is for (PYTHON=/usr/bin/python3 there).
set -eu
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
wheel=${1:?usage: build.sh WHEEL DIRECTORY}
out=${2:?usage: build.sh WHEEL DIRECTORY}
python=${PYTHON:-/usr/bin/python3}
pip=${PIP:-$python -m pip} # nkeys has no wheel: setuptools must be beside it

fail() {
	echo "make deb: $1" >&2
	exit 1
}
command -v dpkg-deb >/dev/null || fail "dpkg-deb is missing: apt-get install dpkg"
[ -x "$python" ] || fail "$python is missing: PYTHON=... names another one"
[ -f "$wheel" ] || fail "$wheel is missing: make wheel"
tools=$(dirname "$wheel")/pyspark_jetstream-$(basename "$wheel" | cut -d- -f2)-py3-none-any.whl # backups and exports are its work
[ -f "$tools" ] || fail "$tools is missing: make wheel"

# Distribution-0.2.0-cp311-cp311-linux_x86_64.whl
version=$(basename "$wheel" | cut -d- -f2)
tag=$(basename "$wheel" | cut -d- -f3)
minor=$($python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
next=$($python -c 'import sys; print("%d.%d" % (sys.version_info[0], sys.version_info[1] + 1))')
[ "$tag" = "cp$(echo "$minor" | tr -d .)" ] || fail "$(basename "$wheel") is not for $python, which is $minor"
architecture=$(dpkg --print-architecture)
name=jetraft_${version}_$architecture

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
umask 022
chmod 755 "$root"
mkdir -p "$root/DEBIAN" "$root/usr/lib/jetraft" "$root/usr/bin" "$root/etc/jetraft" "$root/lib/systemd/system" "$root/usr/share/doc/jetraft"

$pip install --quiet --disable-pip-version-check --no-compile --target "$root/usr/lib/jetraft" --require-hashes --only-binary :all: --no-binary nkeys --no-build-isolation \
	-r "$here/../requirements/server.txt"
$pip install --quiet --disable-pip-version-check --no-compile --target "$root/usr/lib/jetraft" --no-deps --upgrade "$wheel" "$tools"
rm -rf "$root/usr/lib/jetraft/bin"
find "$root/usr/lib/jetraft" -name '*.so' -exec chmod 644 {} +
find "$root/usr/lib/jetraft" -name __pycache__ -prune -exec rm -rf {} +

install -m 755 "$here/jetraft" "$root/usr/bin/jetraft"
install -m 644 "$here/../systemd/jetraft.service" "$root/lib/systemd/system/jetraft.service"
install -m 640 "$here/node.conf" "$root/etc/jetraft/node.conf"
install -m 644 "$here/copyright" "$root/usr/share/doc/jetraft/copyright"
cat "$here/../../NOTICE" >>"$root/usr/share/doc/jetraft/copyright"
gzip -9n <"$here/../../CHANGELOG.md" >"$root/usr/share/doc/jetraft/changelog.gz"
chmod 644 "$root/usr/share/doc/jetraft/changelog.gz"

for script in postinst prerm postrm; do
	install -m 755 "$here/$script" "$root/DEBIAN/$script"
done
echo /etc/jetraft/node.conf >"$root/DEBIAN/conffiles"
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@PYTHON@/$minor/" -e "s/@NEXT@/$next/" \
	-e "s/@SIZE@/$(du -sk "$root/usr" | cut -f1)/" "$here/control" >"$root/DEBIAN/control"
(cd "$root" && find usr lib -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)

mkdir -p "$out"
dpkg-deb --root-owner-group -Zxz --build "$root" "$out/$name.deb" >/dev/null
echo "$out/$name.deb"
