"""A topic into a Delta table by Spark Structured Streaming, as its documentation has it.

It parses, drops events that it has seen, and appends by day. It does without: rejects, conflicts,
fingerprints, positions in the table, dense offsets, ids that are known for longer than the state is kept.
"""

from __future__ import annotations

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments
from benchmarks.scripts.bulk_by_hand import ENVELOPE, REQUIRED, _load_customers, _session


def main() -> None:
    from pyspark.sql import functions as F

    told = arguments()
    tables: str = told["tables"]
    spark = _session(told["spark"])
    mark("session")
    _load_customers(spark, told["customers"], f"{tables}/customers")
    mark("customers")
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", told["brokers"])
        .option("subscribe", told["topic"])
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = records.select(
        F.from_json(F.col("value").cast("string"), ENVELOPE).alias("event"),
        F.to_date("timestamp").alias("partition_date"),
    ).select("event.*", "partition_date")
    events = parsed.select(
        "*",
        F.coalesce(
            F.expr("timestamp_millis(try_cast(timestamp AS BIGINT))"),
            F.expr("try_cast(timestamp AS TIMESTAMP)"),
        ).alias("occurred_at"),
        F.current_timestamp().alias("ingested_at"),
    )
    good = " AND ".join(f"{name} IS NOT NULL" for name in REQUIRED)
    query = (
        events.where(good)
        .dropDuplicates(["event_id"])
        .drop("timestamp")
        .writeStream.format("delta")
        .outputMode("append")
        .option("checkpointLocation", f"{tables}/checkpoint")
        .partitionBy("partition_date")
        .trigger(availableNow=True)
        .start(f"{tables}/events")
    )
    query.awaitTermination()
    mark("events")
    mark("verified", events=spark.read.format("delta").load(f"{tables}/events").count())
    spark.stop()


if __name__ == "__main__":
    main()
