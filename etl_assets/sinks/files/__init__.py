"""The sink of Parquet files on a folder or an object store, and the reader of its manifests."""
