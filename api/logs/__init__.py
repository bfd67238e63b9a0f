"""Log lines: their forms, their budget, and where they go. A line is written once, and never waits for its reader."""
