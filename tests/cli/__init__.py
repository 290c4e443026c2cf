"""The commands as a person types them: what they write, what they print, and their exit codes."""
