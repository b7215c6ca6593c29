"""Self-speculation: the target drafts with fewer of its own layers or less of its cache."""
