"""Training of the embedded models: one recipe a file, its numbers in the YAML beside it.

`python -m specviz.training --help` lists the recipes. The app never imports this package.
"""
