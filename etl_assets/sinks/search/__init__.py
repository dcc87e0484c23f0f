"""The search sink: documents of a search engine that follow a table (OpenSearch, and engines of its API)."""
