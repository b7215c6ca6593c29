"""Exercises of a course on speculative decoding (`specviz labs`): starters, and checks that run a submission in a
process of its own inside the engine."""
