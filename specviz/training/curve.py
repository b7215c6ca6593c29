"""Draw a loss curve as SVG for the model card, without a plotting library."""

from html import escape

WIDTH = 720  # of the figure, in pixels
HEIGHT = 320
LEFT = 56  # margins
BOTTOM = 36
TOP = 28


def draw(title: str, history: list) -> str:
    """Return an SVG plot of the loss over training tokens. history: entries [step, seconds, tokens, loss]."""
    points = [(tokens, loss) for _, _, tokens, loss in history] or [(0, 0.0)]
    most = max(1, points[-1][0])
    low, high = min(loss for _, loss in points), max(loss for _, loss in points)
    span = (high - low) or 1.0

    def x(tokens: float) -> float:
        return LEFT + (WIDTH - LEFT - 16) * tokens / most

    def y(loss: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / span

    line = " ".join(f"{x(tokens):.1f},{y(loss):.1f}" for tokens, loss in points)
    ticks = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - 16}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="#d4d4d8"/>'
        f'<text x="{LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.2f}</text>'
        for v in (low + span * part / 4 for part in range(5))
    )
    marks = "".join(
        f'<text x="{x(most * part / 4):.1f}" y="{HEIGHT - 14}" text-anchor="middle">{_short(most * part / 4)}</text>'
        for part in range(5)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' font-family="system-ui, sans-serif" font-size="12" fill="#3f3f46">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        f'<text x="{LEFT}" y="18" font-weight="600">{escape(title)}: loss over tokens, last {points[-1][1]:.3f}</text>'
        f'{ticks}{marks}<polyline points="{line}" fill="none" stroke="#2563eb" stroke-width="1.5"/></svg>\n'
    )


def _short(number: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"
