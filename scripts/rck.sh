#!/usr/bin/env bash
# Runs Iceberg's own compatibility kit for REST catalogs against /iceberg/v1. Every test for such catalogs must pass. Its jars
# come from Maven and are kept outside the clone.
#
# POLYNYA_BIN: the program to test, else the one that this builds.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

if { ! have java || ! have mvn; } && can_install; then
    apt_install default-jre-headless maven >&2 || say "apt-get could not install Java and Maven" >&2
fi
have java && have mvn || missing "Java and Maven are not installed (Debian: apt-get install default-jre-headless maven)"
have python3 || missing "Python 3 is not installed (Debian: apt-get install python3)"

state=$(cksum <tests/catalog/pom.xml | cut -d' ' -f1)
jars=${XDG_CACHE_HOME:-$HOME/.cache}/polynya/rck-$state
if [ ! -e "$jars/ready" ]; then
    rm -rf "$jars"
    mvn --batch-mode --quiet --file tests/catalog/pom.xml dependency:copy-dependencies "-DoutputDirectory=$jars" >&2 ||
        missing "Maven could not fetch what tests/catalog/pom.xml names"
    touch "$jars/ready"
fi
find_polynya
exec python3 tests/catalog/rck.py "$bin" "$target/catalog-scratch" "$jars"
