"""The jars of servers: a file for each, with names, sizes and checksums."""
