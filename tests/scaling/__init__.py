"""What requests cost as they grow: every field of every request, page and header, at n = 10, 100, 1,000 and 10,000."""
