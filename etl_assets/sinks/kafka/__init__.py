"""The Kafka sink: a topic that follows a table, by transactions."""
