"""Training of the embedded models: one recipe per module, its hyperparameters in the YAML file of the same
name.

`python -m specviz.training --help` lists the recipes. The app never imports this package.
"""
