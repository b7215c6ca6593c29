"""The static site (`specviz site`): recordings, Learn and Traces as files that need no server."""
