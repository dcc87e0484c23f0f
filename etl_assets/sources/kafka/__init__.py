"""The source of records in a Kafka topic."""
