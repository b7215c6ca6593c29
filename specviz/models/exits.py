"""One network with several sizes inside it (sorted training, Valipour et al. 2309.00255; S2D 2407.01955): its first layers, its
last norm and its head are a smaller network. The sizes are declared here for training and for drafting."""
from __future__ import annotations


def exits(layers: int) -> tuple[int, ...]:
    """Half of the layers, three quarters and all, as the paper's 6, 9 and 12; each once, the smallest first."""
    return tuple(sorted({max(1, layers // 2), max(1, 3 * layers // 4), layers}))
