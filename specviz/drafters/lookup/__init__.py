"""Drafters that copy: from the context, earlier answers or a datastore."""
