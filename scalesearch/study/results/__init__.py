"""Results of a study: tables, figures, the report page. May import every room but ``engine``."""
