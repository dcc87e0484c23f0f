"""Records that arrived over HTTP: journal files in the failure domains, and how they are read."""
