"""The bulk case as a good engineer writes it by hand for one machine: plain PySpark and Delta, nothing of the
platform.

It parses, drops duplicates, merges, types, joins the customers and splits off rejects. It does without:
fingerprints and conflicts, source positions and dense offsets, planned batches, transaction ids, locks,
fsync, duplicate keys, exactness of numbers, limits of times and sizes. Rejects are split off by a second pass
over the input: a cache of what was parsed would not fit the heap once the input grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENVELOPE = (
    "event_id STRING, tenant_id STRING, aggregate_id STRING, event_type STRING, payload STRING, timestamp"
    " STRING,"
    " schema_version INT, trace_id STRING, span_id STRING"
)
BROKEN = "broken"
"""Column for lines that are no JSON."""
PAYLOAD = ("amount", "currency", "customer_id")
STATUS = {
    "OrderCreated": "created",
    "PaymentProcessed": "paid",
    "ItemShipped": "shipped",
    "OrderDelivered": "delivered",
    "OrderCanceled": "canceled",
}
REQUIRED = ("event_id", "tenant_id", "aggregate_id", "event_type", "payload", "occurred_at", "schema_version")
ORDER_COLUMNS = (
    "event_id",
    "tenant_id",
    "order_id",
    "event_type",
    "order_status",
    "amount",
    "currency",
    "customer_id",
    "customer_region",
    "occurred_at",
    "event_date",
    "schema_version",
    "trace_id",
    "span_id",
    "partition_date",
)


def main() -> None:
    told = arguments()
    spark = _session(told["spark"])
    tables: str = told["tables"]
    mark("session")
    _load_customers(spark, told["customers"], f"{tables}/customers")
    mark("customers")
    rejects = _ingest(spark, told["landing"], f"{tables}/raw_events")
    mark("raw_events")
    _append(rejects, f"{tables}/raw_events_rejects")
    mark("raw_events_rejects")
    _normalize(spark, tables)
    mark("normalized_orders")
    _load_warehouse(spark, tables)
    mark("warehouse_rows")
    mark("tables")
    names = ("raw_events", "normalized_orders", "warehouse_rows")
    mark("verified", **{name: spark.read.format("delta").load(f"{tables}/{name}").count() for name in names})
    spark.stop()


def _session(settings: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _load_customers(spark: SparkSession, file: str, table: str) -> None:
    customers = spark.read.csv(file, header=True, schema="customer_id STRING, customer_region STRING")
    _insert_new(spark, customers.dropDuplicates(["customer_id"]), table, on="t.customer_id = s.customer_id")


def _ingest(spark: SparkSession, landing: str, table: str) -> DataFrame:
    """Parse, drop duplicates, merge; returns what is rejected, not evaluated yet."""
    from pyspark.sql import functions as F

    read = spark.read.schema(f"{ENVELOPE}, {BROKEN} STRING").option("columnNameOfCorruptRecord", BROKEN)
    parsed = read.json(f"{landing}/2*/*.jsonl").select(
        "*",
        F.to_date(F.regexp_extract(F.col("_metadata.file_path"), r"/(\d{4}-\d{2}-\d{2})/", 1)).alias(
            "partition_date"
        ),
        F.coalesce(
            F.expr("timestamp_millis(try_cast(timestamp AS BIGINT))"),
            F.expr("try_cast(timestamp AS TIMESTAMP)"),
        ).alias("occurred_at"),
    )
    good = " AND ".join(f"{name} IS NOT NULL" for name in REQUIRED)
    events = parsed.where(good).dropDuplicates(["event_id"]).drop(BROKEN, "timestamp")
    events = events.withColumn("ingested_at", F.current_timestamp())
    _insert_new(spark, events, table, on="t.event_id = s.event_id", by_day=True)
    fields = F.to_json(F.struct(*(name for name in parsed.columns if name != BROKEN)))
    rejected = parsed.where(f"NOT ({good})")
    return rejected.select("partition_date", F.coalesce(BROKEN, fields).alias("value"))


def _normalize(spark: SparkSession, tables: str) -> None:
    from pyspark.sql import functions as F

    customers = spark.read.format("delta").load(f"{tables}/customers")
    status = F.create_map(*(F.lit(text) for pair in STATUS.items() for text in pair))
    events = spark.read.format("delta").load(f"{tables}/raw_events")
    # A generator is evaluated once a row; `from_json` would be again for each field that a filter asks for.
    typed = events.select(
        "*", F.json_tuple("payload", *PAYLOAD).alias(*(f"{name}_text" for name in PAYLOAD))
    ).select(
        "event_id",
        "tenant_id",
        F.col("aggregate_id").alias("order_id"),
        "event_type",
        F.try_element_at(status, "event_type").alias("order_status"),
        F.expr(r"CASE WHEN amount_text RLIKE '^[0-9]{1,16}([.][0-9]{1,2})?$' THEN amount_text END")
        .cast("decimal(18,2)")
        .alias("amount"),
        F.col("currency_text").alias("currency"),
        F.col("customer_id_text").alias("customer_id"),
        "occurred_at",
        F.to_date("occurred_at").alias("event_date"),
        "schema_version",
        "trace_id",
        "span_id",
        "partition_date",
        "payload",
    )
    has_amount = "event_type NOT IN ('OrderCreated', 'PaymentProcessed') OR amount IS NOT NULL"
    good = f"order_status IS NOT NULL AND schema_version = 1 AND ({has_amount})"
    orders = typed.where(good).join(F.broadcast(customers), "customer_id", "left").select(*ORDER_COLUMNS)
    _insert_new(spark, orders, f"{tables}/normalized_orders", on="t.event_id = s.event_id", by_day=True)
    _append(
        typed.where(f"NOT coalesce({good}, false)").select("event_id", "partition_date", "payload"),
        f"{tables}/normalized_orders_rejects",
    )


def _load_warehouse(spark: SparkSession, tables: str) -> None:
    from pyspark.sql import functions as F

    rows = (
        spark.read.format("delta")
        .load(f"{tables}/normalized_orders")
        .select(
            F.concat(F.lit("warehouse://orders/"), "tenant_id", F.lit("/"), "event_id").alias(
                "warehouse_key"
            ),
            *ORDER_COLUMNS,
            F.current_timestamp().alias("committed_at"),
        )
    )
    on = "t.warehouse_key = s.warehouse_key AND t.partition_date = s.partition_date"
    _insert_new(spark, rows, f"{tables}/warehouse_rows", on=on, by_day=True)


def _insert_new(spark: SparkSession, rows: DataFrame, path: str, *, on: str, by_day: bool = False) -> None:
    """Insert-only merge: half the work of one that may update."""
    writer = rows.limit(0).write.format("delta").mode("append")
    (writer.partitionBy("partition_date") if by_day else writer).save(path)
    rows.createOrReplaceTempView("incoming")
    spark.sql(f"MERGE INTO delta.`{path}` t USING incoming s ON {on} WHEN NOT MATCHED THEN INSERT *")


def _append(rows: DataFrame, path: str) -> None:
    rows.write.format("delta").mode("append").save(path)


if __name__ == "__main__":
    main()
