"""Reading and writing files: writes are atomic, and reading a file never executes code from it."""
