"""An installation that reads from and delivers to the servers of `etl_assets.stack`: YAML only."""
