"""Files of an object store as a source."""
