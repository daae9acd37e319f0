"""The front as one page that needs nothing else: the picture and the table, each showing the other's rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ...explore.goals import Goal
from ..readable import shown_column
from .front import Front
from .front_svg import front_svg

# Nothing is loaded, and nothing but what stands here runs.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_STYLE = """
:root{color-scheme:light dark}body{margin:24px;font:14px/1.45 system-ui,"Segoe UI",Helvetica,Arial,sans-serif;
background:#fff;color:#1c2430}main{display:flex;flex-wrap:wrap;gap:24px;align-items:flex-start}
h1{font-size:19px;margin:0 0 4px}p{margin:0 0 14px;color:#5b6675;max-width:70em}
figure{margin:0;flex:1 1 560px;max-width:860px}
svg{width:100%;height:auto}.table{flex:1 1 420px;overflow-x:auto}table{border-collapse:collapse;font-size:13px}
th,td{padding:4px 10px;text-align:right;border-bottom:1px solid #d9dee5;white-space:nowrap}
th{font-weight:600;vertical-align:bottom}th:last-child,td:last-child{text-align:left;white-space:normal;min-width:16em;
font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px}tr.on td{background:#e8f1fa}
@media screen and (prefers-color-scheme:dark){body{background:#14181f;color:#e6eaf0}p{color:#9aa5b4}
th,td{border-color:#2b323d}tr.on td{background:#1f3247}}
@media print{body{margin:0}main{display:block}.table{margin-top:12px;overflow:visible}}
"""
_SCRIPT = """
for (const one of document.querySelectorAll('[data-row]')) {
  const all = document.querySelectorAll('[data-row="' + one.dataset.row + '"]');
  one.addEventListener('mouseenter', () => all.forEach(e => e.classList.add('on')));
  one.addEventListener('mouseleave', () => all.forEach(e => e.classList.remove('on')));
}
"""


def front_html(front: Front, columns: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """Return the front as an HTML page that works from a file, without a network.

    `columns` are numbers to show behind the goals, `notes` lines above the picture.
    """
    title = escape(front.title or "Pareto-optimal plans")
    shown = [*front.goals, *(Goal(name) for name in columns if name in front.others)]
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        f"<p>{escape(_caption(front))}</p>",
        *(f"<p>{escape(note)}</p>" for note in notes),
        "<main><figure>",
        front_svg(front, titled=False),
        "</figure>",
        '<div class="table"><table>',
        *_rows(front, shown),
        "</table></div></main>",
        f"<script>{_SCRIPT}</script></body></html>",
    ]
    return "\n".join(lines) + "\n"


def _caption(front: Front) -> str:
    num, goals = int(front.is_best.sum()), ", ".join(f"{goal.label} ({goal.better} is better)" for goal in front.goals)
    whole = f" of {front.num_evaluated:,} evaluated" if front.num_evaluated else ""
    cloud = len(next(iter(front.cloud.values()))) if front.cloud else 0
    picked = ", picked at random" if cloud + len(front.labels) < front.num_evaluated else ""
    sample = f" Grey: {cloud:,} of the others{picked}." if cloud else ""
    return f"{num:,} plan{'' if num == 1 else 's'}{whole}, Pareto-optimal in {goals}.{sample}"


def _rows(front: Front, shown: Sequence[Goal]) -> Iterator[str]:
    heads = "".join(f"<th>{escape(goal.label)}</th>" for goal in shown)
    yield f"<thead><tr>{heads}<th>plan</th></tr></thead><tbody>"
    columns = [shown_column(front.columns[goal.name][front.best].tolist(), goal.unit) for goal in shown]
    for n, k in enumerate(front.best):
        cells = "".join(f"<td>{escape(column[n])}</td>" for column in columns)
        yield f'<tr data-row="{k}">{cells}<td>{escape(front.labels[int(k)])}</td></tr>'
    yield "</tbody>"
