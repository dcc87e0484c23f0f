"""The cold case as the documentation of Spark and Delta has it: default settings, one MERGE of ten rows,
nothing else.
"""

from __future__ import annotations

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments


def main() -> None:
    from delta import DeltaTable
    from pyspark.sql import SparkSession

    told = arguments()
    spark = (
        SparkSession.builder.config("spark.jars", told["jars"])
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config(map=told["spark"])
        .getOrCreate()
    )
    mark("session")
    rows = spark.read.schema(told["schema"]).json(told["rows"])
    orders = DeltaTable.forPath(spark, told["table"]).alias("t")
    merge = orders.merge(rows.alias("s"), "t.order_id = s.order_id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    mark("merged")
    mark("verified", rows=spark.read.format("delta").load(told["table"]).count())
    spark.stop()


if __name__ == "__main__":
    main()
