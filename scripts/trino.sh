#!/usr/bin/env bash
# Tests Trino on the Iceberg REST catalog: it reads Polynya's tables and writes its own. Trino comes from Maven (820 MB) and is
# unpacked outside the clone, with only the plugin that is needed.
#
# POLYNYA_BIN: the program to test, else the one that this builds.
# JAVA_HOME: a Java to run Trino with; else the first one on the PATH or in /usr/lib/jvm that is new enough.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

version=476 java_needed=24

find_java() {
    local java found
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java)" /usr/lib/jvm/*/bin/java; do
        [ -x "$java" ] || continue
        found=$("$java" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p')
        [ "${found:-0}" -lt "$java_needed" ] || { say "$java" && return; }
    done
    return 1
}

if ! java=$(find_java) && can_install; then
    apt_install openjdk-25-jre-headless >&2 || say "apt-get could not install Java" >&2
fi
java=$(find_java) || missing "Java $java_needed or newer, which Trino $version wants, is not installed (Debian 13: apt-get install openjdk-25-jre-headless; elsewhere any JDK 25, with JAVA_HOME saying where)"
if ! have mvn && can_install; then
    apt_install maven >&2 || say "apt-get could not install Maven" >&2
fi
have mvn || missing "Maven is not installed (Debian: apt-get install maven)"
have python3 && python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    missing "Python 3.10 or newer is not installed (Debian: apt-get install python3)"

home=${XDG_CACHE_HOME:-$HOME/.cache}/polynya/trino-$version
if [ ! -e "$home/ready" ]; then
    need_disk 3 "$home" "Trino"
    rm -rf "$home"
    mkdir -p "$home"
    mvn --batch-mode --quiet dependency:copy "-Dartifact=io.trino:trino-server:$version:tar.gz" \
        "-DoutputDirectory=$home/packed" >&2 || missing "Maven could not fetch trino-server $version"
    # Unpacks everything, since files of a plugin are links to those of others.
    tar -xzf "$home/packed/trino-server-$version.tar.gz" -C "$home" --strip-components=1
    rm -rf "$home/packed"
    find "$home/plugin" -mindepth 1 -maxdepth 1 ! -name iceberg -exec rm -rf {} +
    touch "$home/ready"
fi
find_polynya
exec python3 tests/catalog/trino.py "$bin" "$target/catalog-scratch" "$home" "$java"
