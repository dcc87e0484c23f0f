"""The film-rental sample: a made-up shop in PostgreSQL with 16,000 rentals, and pipelines that read it.

`load_film_rental(address)` in `database.py` makes the schema `film_rental` in a database and fills it, the
same rows each time. `copy_pipelines(folder)` in `pipeline_files.py` puts the pipelines of the folder
`pipelines` into an installation's folder. They name the connections `rentals` (the sample's database),
`warehouse` (PostgreSQL, writes `analytics.*`) and `search` (writes `film_rating_agg*`).
"""
