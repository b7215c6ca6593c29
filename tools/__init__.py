"""Tools of the developers, run in a checkout as ``python -m tools.NAME``: writers of generated pages, benches
of single parts. Nothing of the package imports them."""
