"""Debezium's change events as a source: an envelope around what the sources of Kafka and of files read."""
