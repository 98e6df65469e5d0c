"""Spark and DuckDB run the same statements: a real Spark, in its local mode, against DuckDB and the plain loop."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import logkit
from onoff import fit
from onoff.logs.count import count_sources, count_transitions
from onoff.logs.engines import DuckDB, Spark, explain_errors
from onoff.logs.read import ReadOptions, open_log

pytestmark = pytest.mark.long  # a Java takes 20 seconds to start
CODES = {"x": 0, "y": 1}
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory):
    made = DuckDB("1GB", tmp_path_factory.mktemp("duckdb"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def spark(duckdb):
    pytest.importorskip("pyspark", reason="PySpark is not installed (extra `spark`)")
    if shutil.which("java") is None:
        pytest.skip("Java is not installed: apt-get install openjdk-17-jre-headless")
    duckdb.connection.execute("CREATE TEMP VIEW log AS SELECT 1 AS user")
    with pytest.MonkeyPatch.context() as patch:  # a Java that starts fast rather than one that runs long
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"--driver-java-options '{QUICK_JAVA}' pyspark-shell")
        made = Spark("local[2]", duckdb)
    made.session.conf.set("spark.sql.shuffle.partitions", "2")  # a few rows need no 200 tasks
    yield made
    made.close()


def read(file, duckdb, spark):
    """Let DuckDB read the file, and Spark take it over."""
    open_log(duckdb, [file], ReadOptions())
    spark.load(duckdb)


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl", "log.parquet"])
def test_spark_counts_the_same_as_duckdb_and_a_plain_loop(duckdb, spark, tmp_path, name):
    file = logkit.write(logkit.AWKWARD, tmp_path / name)
    found = []
    with explain_errors(file):
        read(file, duckdb, spark)
        for engine in (duckdb, spark):
            sources = [count_sources(engine, 2), count_sources(engine, 9, ["y", "none"])]
            found.append((logkit.as_counters(count_transitions(engine, CODES, 3, 2, 50.0, 3)), sources))
    assert found[0] == found[1]
    assert found[1][0] == logkit.counted(logkit.AWKWARD, ["x", "y"], 50.0, 2)


def test_a_file_in_many_blocks_keeps_its_order(duckdb, spark, tmp_path):
    rng = np.random.default_rng(5)
    rows = [(f"u{rng.integers(20)}", str(rng.integers(3)), "xyz"[rng.integers(3)]) for _ in range(20_000)]
    file = logkit.write(rows, tmp_path / "log.csv")
    spark.session.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    spark.session.conf.set("spark.sql.files.openCostInBytes", "0")
    try:
        with explain_errors(file):
            read(file, duckdb, spark)
            assert spark.session.table("log").rdd.getNumPartitions() > 3
            found = count_transitions(spark, CODES | {"z": 2}, 3, None, None, 3)
    finally:
        spark.session.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.session.conf.unset("spark.sql.files.openCostInBytes")
    assert logkit.as_counters(found) == logkit.counted(rows, ["x", "y", "z"])


def test_names_are_data_for_both_engines_whatever_letters_they_have(duckdb, spark, tmp_path):
    names = ["it's", "a\\b", 'say "x"', "100%", "$1", "{x}"]
    rows = [("u", str(t), names[t % len(names)]) for t in range(20)]
    file = logkit.write(rows, tmp_path / "log.parquet")
    codes = {name: code for code, name in enumerate(names)}
    with explain_errors(file):
        read(file, duckdb, spark)
        assert count_sources(spark, 9, names[:2]).left_out == tuple(sorted(names[:2]))
        found = count_transitions(spark, codes, len(names), None, None, 3)
    assert logkit.as_counters(found) == logkit.counted(rows, names)


@pytest.mark.usefixtures("spark")
def test_a_fit_by_spark_is_that_by_duckdb(tmp_path):
    file = logkit.write(logkit.AWKWARD, tmp_path / "log.csv")
    assert fit(file, spark="local[2]", gap=50, memory=3).report == fit(file, gap=50, memory=3).report
