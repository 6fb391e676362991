#!/usr/bin/env bash
# Tests Spark on the Iceberg REST catalog: it reads Polynya's tables and writes its own. Spark comes from PyPI, Iceberg's runtime
# for it from Maven; both are kept outside the clone.
#
# POLYNYA_BIN: the program to test, else the one that this builds.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

runtime=iceberg-spark-runtime-4.0_2.13 version=1.10.0

if { ! have java || ! have mvn; } && can_install; then
    apt_install default-jre-headless maven >&2 || say "apt-get could not install Java and Maven" >&2
fi
have java && have mvn || missing "Java and Maven are not installed (Debian: apt-get install default-jre-headless maven)"
# Spark comes only as a source distribution, which contains its jars.
python_environment spark 10 tests/catalog/requirements-spark.txt
jar=$environment/jars/$runtime-$version.jar
[ -e "$jar" ] || mvn --batch-mode --quiet dependency:copy "-Dartifact=org.apache.iceberg:$runtime:$version" \
    "-DoutputDirectory=$environment/jars" >&2 || missing "Maven could not fetch $runtime"
find_polynya
exec "$environment/bin/python" tests/catalog/spark.py "$bin" "$target/catalog-scratch" "$jar"
