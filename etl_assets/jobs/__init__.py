"""Jobs that belong to no asset: maintenance of the tables."""
