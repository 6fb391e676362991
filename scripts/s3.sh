#!/usr/bin/env bash
# Tests the lake and backups in versitygw instead of moto: an S3 server that checks signatures and conditions and keeps objects as
# files. It comes from Go's module proxy and is built outside the clone.
#
# POLYNYA_BIN: the program to test, else the one that this builds.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

version=v1.8.0

have go || ! can_install || apt_install golang >&2 || say "apt-get could not install Go" >&2
have go || missing "Go is not installed (Debian: apt-get install golang)"
lake=$(scripts/lake.sh)
[[ "$lake" = ready\ * ]] || missing "$lake"
home=${XDG_CACHE_HOME:-$HOME/.cache}/polynya/versitygw-$version
if [ ! -x "$home/versitygw" ]; then
    say "versitygw $version is built, once"
    GOBIN=$home GOFLAGS=-mod=mod go install "github.com/versity/versitygw/cmd/versitygw@$version" >&2 ||
        missing "versitygw $version could not be built"
fi
find_polynya

scratch=$(mktemp -d)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir "$scratch/store" "$scratch/iam"
export ROOT_ACCESS_KEY_ID=key ROOT_SECRET_ACCESS_KEY=secret
"$home/versitygw" --port "127.0.0.1:$port" --iam-dir "$scratch/iam" --quiet posix "$scratch/store" >"$scratch/log" 2>&1 &
server=$!
trap 'kill "$server"; wait "$server" || true; rm -rf "$scratch"' EXIT
for _ in $(seq 100); do
    "$home/versitygw" admin --access key --secret secret --endpoint-url "http://127.0.0.1:$port" \
        create-user --access of-the-command --secret secret --role admin >>"$scratch/log" 2>&1 && break
    kill -0 "$server" || fail "versitygw does not run: $(cat "$scratch/log")"
    sleep 0.1
done
unset ROOT_ACCESS_KEY_ID ROOT_SECRET_ACCESS_KEY
"${lake#ready }" tests/lake/objects.py "$bin" "$target/lake-s3" "$port"
