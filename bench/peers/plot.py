"""Plain charts as SVG: bars of checks a second, and what callers waited while Redis was away."""

from html import escape
from math import log10

OURS, OTHERS, INK, FAINT = "#1f6f5c", "#9aa5b1", "#222", "#ddd"
STYLE = f'font-family="sans-serif" font-size="12" fill="{INK}"'


def _svg(width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" {STYLE}>\n'
            f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


def bars(title, rows):
    """rows: (name, figure, whether it is ours), the longest on top."""
    left, right, step = 270, 90, 22
    width, height = 870, 50 + step * len(rows)
    most = max((figure for _, figure, _ in rows), default=1)
    parts = [f'<text x="10" y="22" font-size="14" font-weight="bold">{escape(title)}</text>']
    for index, (name, figure, ours) in enumerate(sorted(rows, key=lambda row: -row[1])):
        y = 40 + index * step
        length = figure / most * (width - left - right)
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
                     f'<rect x="{left}" y="{y}" width="{length:.1f}" height="16" fill="{OURS if ours else OTHERS}"/>'
                     f'<text x="{left + length + 6:.1f}" y="{y + 12}">{figure:,.0f}</text>')
    return _svg(width, height, parts)


def waits(title, rows, away):
    """rows: (name, [(second, status, wait)], whether it is ours), one strip each; the wait on a logarithmic scale from 1 ms to 10 s."""
    left, strip, width = 270, 64, 870
    height = 60 + (strip + 10) * len(rows)
    end = max((at for _, answers, _ in rows for at, _, _ in answers), default=1)
    colours = {"200": OURS, "429": "#c9a227", "error": "#b3261e"}
    parts = [f'<text x="10" y="22" font-size="14" font-weight="bold">{escape(title)}</text>']
    for index, (word, colour) in enumerate((("passed", OURS), ("429", colours["429"]), ("5xx or no answer", colours["error"]))):
        parts.append(f'<circle cx="{left + index * 90}" cy="36" r="4" fill="{colour}"/><text x="{left + 8 + index * 90}" y="40">{word}</text>')

    def x(at):
        return left + at / end * (width - left - 20)
    for index, (name, answers, _) in enumerate(rows):
        top = 50 + index * (strip + 10)
        parts.append(f'<text x="{left - 46}" y="{top + strip / 2 + 4}" text-anchor="end">{escape(name)}</text>'
                     f'<rect x="{x(away[0]):.1f}" y="{top}" width="{x(away[1]) - x(away[0]):.1f}" height="{strip}" fill="#f3f0e7"/>')
        for level, word in ((0, "1 ms"), (2, "0.1 s"), (4, "10 s")):
            y = top + strip - level / 4 * strip
            parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="{FAINT}"/>'
                         f'<text x="{left - 4}" y="{y + 3:.1f}" text-anchor="end" font-size="9">{word}</text>')
        for at, status, wait in answers:
            y = top + strip - min(4, max(0, log10(max(wait, 0.001) * 1000))) / 4 * strip
            parts.append(f'<circle cx="{x(at):.1f}" cy="{y:.1f}" r="1.6" fill="{colours.get(str(status), colours["error"])}"/>')
    return _svg(width, height, parts)
