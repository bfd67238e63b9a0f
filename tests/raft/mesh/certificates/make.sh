#!/bin/sh
# Makes the certificates of the TLS tests anew; they are committed so that the tests need no openssl. The keys guard
# nothing but those tests.
set -eu
cd "$(dirname "$0")"

authority() { # name
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 -subj "/CN=$1 test authority" \
        -keyout "$1-ca.key" -out "$1-ca.pem" -addext "keyUsage=critical,keyCertSign"
}

node() { # authority, name, subjectAltName
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" -keyout "$2.key" -out "$2.csr"
    printf 'subjectAltName=%s\n' "$3" > "$2.ext"
    openssl x509 -req -days 36500 -in "$2.csr" -CA "$1-ca.pem" -CAkey "$1-ca.key" -extfile "$2.ext" -out "$2.pem"
    rm "$2.csr" "$2.ext"
}

authority ours
authority other
node ours node "IP:127.0.0.1,DNS:localhost"
node ours elsewhere "DNS:elsewhere.invalid"
node other stranger "IP:127.0.0.1,DNS:localhost"
rm -f ours-ca.key other-ca.key ./*.srl
