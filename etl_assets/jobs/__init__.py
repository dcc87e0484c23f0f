"""Jobs that belong to no asset: upkeep of the tables."""
