"""Package models.yaml and assets/ as data of ``specviz.data``; everything else is declared in pyproject.toml.

In a checkout both stay at the top. ``specviz.ROOT`` finds them in either place.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
URL = os.environ.get("SPECVIZ_URL", "").rstrip("/")  # of the public repository, given by who publishes
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


def description(url: str) -> str:
    """Return README.md for a package index: without the front matter of a Space, and without relative links
    and pictures, which lead nowhere there. url: of the repository, where relative links then lead."""
    text = (HERE / "README.md").read_text(encoding="utf-8").split("---\n", 2)[2].lstrip()
    away = r"\((?!https?:|#)([^)\s]+)\)"
    text = re.sub(rf"!\[([^]]*)\]{away}\n*", rf"![\1]({url}/raw/HEAD/\2)\n\n" if url else "", text)
    return re.sub(rf"(?<!!)\[([^]]*)\]{away}", rf"[\1]({url}/blob/HEAD/\2)" if url else r"\1", text)


class BuildPy(build_py):
    def find_package_modules(self, package, package_dir):
        """Leave this file out of ``specviz.data``, whose folder is the top of the checkout."""
        return [
            module
            for module in super().find_package_modules(package, package_dir)
            if Path(module[2]).name != "setup.py"
        ]


setup(
    long_description=description(URL),
    long_description_content_type="text/markdown",
    project_urls={"Source": URL, "Issues": f"{URL}/issues", "Changelog": f"{URL}/blob/HEAD/CHANGELOG.md"}
    if URL
    else {},
    cmdclass={"build_py": BuildPy},
    packages=[*find_packages(str(HERE), include=["specviz", "specviz.*"]), "specviz.data"],
    package_dir={"specviz.data": "."},
    package_data={
        "specviz": ["py.typed", "**/*.yaml", "coursework/starters/*.md", "site/static/*", "ui/static/*"],
        "specviz.data": list(DATA),
    },
    include_package_data=False,
)
