"""Package models.yaml and assets/ as data of ``specviz.data``; everything else is declared in pyproject.toml.

In a checkout both stay at the top. ``specviz.ROOT`` finds them in either place.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
# Embedded models that go into a wheel: the small target and what is trained for it, and two drafts of the
# chat model. The rest stays in the repository, or is fetched by `specviz models --fetch NAME`.
MODELS = (
    "Llama-specviz-16M",
    "Llama-specviz-draft",
    "Llama-specviz-draft-small",
    "Llama-specviz-other-draft",
    "Llama-specviz-eagle",
    "Llama-specviz-medusa",
    "Llama-specviz-kangaroo",
    "Llama-specviz-SmolLM2-135M-draft",
    "SmolLM2-135M-Instruct-draft-small",
)
DATA = (
    "models.yaml",
    "app.py",
    "README.md",
    "CITATION.cff",
    "LICENSE",
    "CHANGELOG.md",
    "assets/*.json",
    "assets/*.yaml",
    "assets/*.png",
    "assets/models/LICENSES.md",
    "assets/panels/**/*",
    "assets/prompts/**/*",
    "assets/stores/text/**/*",
    "assets/stores/SmolLM2-135M-Instruct-text/**/*",
    "assets/traces/**/*",
    "assets/viewer/**/*",
    *(f"assets/models/{name}/**/*" for name in MODELS),
    # The default chat model without its weights, which a package of the Python index carries (package: in
    # models.yaml).
    *(
        f"assets/models/SmolLM2-135M-Instruct/{name}"
        for name in ("LICENSE", "README.md", "*.json", "*.jinja", "*.sha256")
    ),
)


class BuildPy(build_py):
    def find_package_modules(self, package, package_dir):
        """Leave this file out of ``specviz.data``, whose folder is the top of the checkout."""
        return [
            module
            for module in super().find_package_modules(package, package_dir)
            if Path(module[2]).name != "setup.py"
        ]


setup(
    cmdclass={"build_py": BuildPy},
    packages=[*find_packages(str(HERE), include=["specviz", "specviz.*"]), "specviz.data"],
    package_dir={"specviz.data": "."},
    package_data={"specviz": ["py.typed", "**/*.yaml", "ui/static/*"], "specviz.data": list(DATA)},
    include_package_data=False,
)
