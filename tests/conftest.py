"""What every test may count on: one thread, no network, no colours, no progress bars."""

import os
import sys
import warnings

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "0")
os.environ["NO_COLOR"] = "1"
if not os.environ.get("SPECVIZ_TEST_HUB"):
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"

import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
_warn = warnings.warn


def library(frame) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]


def is_own_call(frame) -> bool:
    """Whether the package calls the library that warns in this frame; calls of one library by another are
    not ours to change."""
    warning = library(frame)
    while frame is not None and library(frame) in (warning, "typing_extensions", "functools", "contextlib"):
        frame = frame.f_back
    return frame is not None and library(frame) == "specviz"


def warn(message, category=None, stacklevel=1, source=None, **options):
    """``warnings.warn``, which raises what the package's own calls cause of what libraries will remove."""
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    frame = sys._getframe(1)
    if issubclass(kind, (DeprecationWarning, FutureWarning)) and is_own_call(frame):
        raise message if isinstance(message, Warning) else kind(message)
    _warn(message, category, stacklevel + 1, source, **options)


warnings.warn = warn


TIERS = {"thorough": "SPECVIZ_TEST_THOROUGH", "soak": "SPECVIZ_TEST_SOAK"}  # marker: what asks for its tests


def _marked(item, names) -> bool:
    return any(mark.name in names for mark in item.iter_markers())


def pytest_collection_modifyitems(config, items):
    """Tests that need what this machine lacks are skipped, and say what it is; those of other tiers are left to
    ``make thorough`` and ``make soak``."""
    others = {
        name for name, asks in TIERS.items() if config.option.markexpr == "" and not os.environ.get(asks)
    }
    if others:
        config.hook.pytest_deselected(items=[item for item in items if _marked(item, others)])
        items[:] = [item for item in items if not _marked(item, others)]
    missing = {
        "gpu": None if torch.cuda.is_available() else "needs an accelerator",
        "engines": None
        if os.environ.get("SPECVIZ_TEST_ENGINES")
        else "needs llama.cpp's server; make test-engines",
        "hub": None if os.environ.get("SPECVIZ_TEST_HUB") else "needs the network; set SPECVIZ_TEST_HUB=1",
        "thorough": None
        if os.environ.get("SPECVIZ_TEST_THOROUGH")
        else "every method and setting, and the long ones; set SPECVIZ_TEST_THOROUGH=1",
        "soak": None if os.environ.get("SPECVIZ_TEST_SOAK") else "runs for minutes; set SPECVIZ_TEST_SOAK=1",
    }
    items[:] = spread(items)
    if torch.cuda.is_available():
        items.sort(key=lambda item: item.get_closest_marker("far") is not None)
    for item in items:
        for marker, why in missing.items():
            if why and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=why))


def spread(items: list) -> list:
    """The same tests, with modules that wait for a browser spread evenly among those that compute: workers
    beside each other then seldom wait at the same time."""
    modules: dict[str, list] = {}
    for item in items:
        modules.setdefault(item.location[0], []).append(item)
    waiting = {
        name for name, tests in modules.items() if any("browser" in test.fixturenames for test in tests)
    }
    placed = []
    for kind in (waiting, modules.keys() - waiting):
        chosen = [tests for name, tests in modules.items() if name in kind]
        total, before = sum(map(len, chosen)), 0
        for tests in chosen:
            placed.append((before / total, tests))
            before += len(tests)
    return [test for _, tests in sorted(placed, key=lambda pair: pair[0]) for test in tests]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The folder of a tiny pair on disk, named by a models.yaml of its own."""
    from .zoo.checkpoints import register

    folder = tmp_path_factory.mktemp("zoo")
    register(folder)
    return folder


@pytest.fixture
def at_home(tiny, monkeypatch):
    """The tiny pair is what ``load()`` loads."""
    from specviz import zoo

    monkeypatch.setenv("SPECVIZ_MODELS", str(tiny / "models.yaml"))
    yield tiny
    zoo.forget()


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all tests of this process; its pages are used in ``tests.browser.POOL``."""
    from .browser import running

    browser, end = running()
    yield browser
    end()
