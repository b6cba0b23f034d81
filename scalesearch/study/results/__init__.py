"""What a finished study gives: tables, figures, pages. Imports everything but engine."""
