"""What the documentation site adds to the pages: commands, API, results, and linked files."""
