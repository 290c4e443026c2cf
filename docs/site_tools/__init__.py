"""What the documentation's site adds to the pages: commands, API, results, and the files that pages link to."""
