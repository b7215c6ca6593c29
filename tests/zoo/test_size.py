"""What ships has a limit: a clone, a Space and a push have one."""
from specviz import ASSETS
from specviz.zoo.registry import register

WEIGHTS = sorted((ASSETS / "models").glob("*/*.safetensors"))


def test_all_weights_together_and_each_file_stay_within_what_the_repository_may_hold():
    sizes = {path: path.stat().st_size for path in WEIGHTS}
    assert WEIGHTS and sum(sizes.values()) < 300e6, f"{sum(sizes.values()) / 1e6:.0f} MB of weights"
    assert not [path.name for path, size in sizes.items() if size > 10e6]


def test_the_heads_of_a_target_stay_within_theirs():
    of: dict[str, float] = {}
    for entry in register().entries.values():
        if entry.role == "head" and entry.path and entry.path.is_dir():
            of[entry.target] = of.get(entry.target, 0.0) + sum(path.stat().st_size for path in entry.path.glob("*.safetensors"))
    assert of and all(size < 100e6 for size in of.values()), {name: f"{size / 1e6:.0f} MB" for name, size in of.items()}
