"""The text so far, earlier answers or a datastore drafts."""
