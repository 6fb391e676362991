#!/usr/bin/env bash
# Spark on the Iceberg REST catalog: reads Polynya's tables, writes tables of its own. Spark comes from PyPI, Iceberg's runtime
# for it from Maven; both lie outside the clone.
#
# POLYNYA_BIN: the program to test, else the one that this builds.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

runtime=iceberg-spark-runtime-4.0_2.13 version=1.10.0

missing() {
    [ -z "${CI:-}" ] || fail "$1, and in CI nothing is skipped"
    say "SKIPPED: $1"
    exit 0
}

if { ! have java || ! have mvn; } && can_install; then
    apt_install default-jre-headless maven >&2 || say "apt-get could not install Java and Maven" >&2
fi
have java && have mvn || missing "Java and Maven are not installed (Debian: apt-get install default-jre-headless maven)"
have python3 && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
    missing "Python 3.10 or newer with venv is not installed (Debian: apt-get install python3 python3-venv)"

requirements=tests/catalog/requirements-spark.txt
state=$(cat "$requirements" <(say "$runtime $version") <(python3 --version) | cksum | cut -d' ' -f1)
environment=${XDG_CACHE_HOME:-$HOME/.cache}/polynya/spark-$state
if [ ! -e "$environment/ready" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment" >&2 || missing "python3 could not make a virtual environment in $environment"
    # Spark comes as source alone, which is its jars.
    "$environment/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2 ||
        missing "pip could not install what $requirements names"
    mvn --batch-mode --quiet dependency:copy "-Dartifact=org.apache.iceberg:$runtime:$version" \
        "-DoutputDirectory=$environment/jars" >&2 || missing "Maven could not fetch $runtime"
    touch "$environment/ready"
fi
find_polynya
exec "$environment/bin/python" tests/catalog/spark.py "$bin" "$target/catalog-scratch" "$environment/jars/$runtime-$version.jar"
