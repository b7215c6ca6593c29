"""Traces: the events of a run, trace records and files (docs/TRACE.md), and the stand-alone page. Files and
page do not import torch."""
