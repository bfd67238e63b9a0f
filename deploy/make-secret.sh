#!/bin/sh
# Makes the secret of the cluster where there is none. The nodes read it as user 10001, so the file is readable for all;
# the directory is not, and with that nobody else on this host comes to it.
set -eu
cd "$(dirname "$0")"
secret=private/cluster_secret
mkdir -p -m 0700 private
chmod 0700 private
if [ -f cluster_secret ] && [ ! -e "$secret" ]; then # where it was once; containers that run name it there
    mv cluster_secret "$secret"
    ln -s "$secret" cluster_secret
fi
if [ ! -e "$secret" ]; then
    umask 077
    head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$secret.new"
    mv "$secret.new" "$secret"
    echo "a secret for the cluster was made: deploy/$secret"
fi
chmod 0444 "$secret"
