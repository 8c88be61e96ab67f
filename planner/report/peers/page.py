"""Comparison with peers as a page: how many times as fast ours is, and where each loses time."""

from __future__ import annotations

from planner.peer_runs.request import Setting
from planner.peer_runs.result import Comparison, PeerResult
from planner.quantities import format_interval, format_range
from planner.report.figures.figure import Figure, drawn_figures, escaped, figures_html
from planner.report.figures.rows import Mark, bar_plot, point_plot, rate_mark
from planner.report.page.document import facts_html, list_cell, list_table, page_document, row_head
from planner.report.peers.table import facts, own_rows, peer_row
from planner.report.table import Row

_STYLE = """
body { max-width: 64rem; } h1 { margin-bottom: .4rem; }
.list td, .list th { padding: .15rem .7rem .15rem 0; vertical-align: top; white-space: nowrap; }
.list td:last-child { white-space: normal; }
"""
_KEYS = (
    *("peer", "version", "spread", "rate", "ratio", "rounds"),
    *("loading", "exchange", "update", "start"),
)
_TITLES = {
    "spread": "processes x threads",
    "rate": "samples/s",
    "ratio": "ours / it",
    "start": "start-up",
}
"""Of columns whose keys are not their titles."""

_PLURALS = {Setting.DEFAULTS: "at their defaults", Setting.OURS: "with our settings"}
_MOST = 2.0
"""An interval is drawn up to so many times the largest ratio: a wider one would hide the others."""


def comparison_page(found: Comparison) -> str:
    """Give the comparison as one HTML document, without scripts and links."""
    title = f"{found.use_case}: ours and other ways to train"
    settings = dict.fromkeys(result.setting for result in found.results)
    parts = "".join(_part(found, setting) for setting in settings)
    return page_document(
        title,
        f"<h1>{escaped(title)}</h1>{facts_html(facts(found))}{parts}"
        '<p class="soft">± and ranges in brackets are 95 % intervals; ratios are of turns side by '
        "side. Loading, exchange and update are shares of the first process's step: waiting for "
        "the batch, for the sum of gradients after its own last one, and the optimizer; - is "
        "not measured.</p>",
        style=_STYLE,
    )


def _part(found: Comparison, setting: Setting) -> str:
    results = [result for result in found.results if result.setting is setting]
    figures = drawn_figures(_ratio_figure(results, setting), rate_figure(found, results, setting))
    drawn = figures_html(figures, str(setting))
    head = "".join(f'<th scope="col">{escaped(_TITLES.get(key, key))}</th>' for key in _KEYS)
    # Ours stands over the peers of each setting, with all its turns.
    rows = "".join([*map(_row, own_rows(found)), *map(_rows, results)])
    title = f"Peers {_PLURALS[setting]}"
    return f"<h2>{escaped(title)}</h2>{drawn}{list_table(title, head, rows)}"


def _ratio_figure(results: list[PeerResult], setting: Setting) -> Figure | None:
    """Show how many times as fast ours is as each peer; ``None`` where none has two rounds."""
    known = sorted(
        ((r.ratio, r) for r in results if r.ratio is not None), key=lambda one: one[0].median
    )
    if not known:
        return None
    most = _MOST * max(ratio.median for ratio, _ in known)
    marks = [
        Mark(
            label=f"{result.peer} {result.version or ''}".strip(),
            value=ratio.median,
            low=ratio.low,
            high=min(ratio.high, most),
            text=format_range(ratio),
        )
        for ratio, result in known
    ]
    title = f"Samples per second, ours / peers {_PLURALS[setting]}"
    return Figure(
        title=title,
        svg=point_plot(marks, title=title, unit="times", origin=1.0),
        columns=("peer", "ours / it", "rounds"),
        rows=[(r.peer, format_range(ratio), str(len(r.rounds))) for ratio, r in known],
        note="The line is at 1: where both are as fast. 95 % intervals; what is beyond "
        f"{most:.3g} is not drawn.",
    )


def rate_figure(found: Comparison, results: list[PeerResult], setting: Setting) -> Figure | None:
    """Show samples per second of ours and of each peer; ``None`` where none trained."""
    known = [(r.peer, r.samples_per_s) for r in results if r.samples_per_s is not None]
    if not known or found.samples_per_s is None:
        return None
    rates = [("ours", found.samples_per_s), *sorted(known, key=lambda one: -one[1].median)]
    title = f"Samples per second, peers {_PLURALS[setting]}"
    return Figure(
        title=title,
        svg=bar_plot(
            [
                rate_mark(name, rate, is_main=number == 0)
                for number, (name, rate) in enumerate(rates)
            ],
            title=title,
            unit="samples/s",
        ),
        columns=("contender", "samples/s"),
        rows=[(name, format_interval(rate)) for name, rate in rates],
        note="Medians of turns that were taken at different times: ratios say more.",
    )


def _rows(result: PeerResult) -> str:
    """Give the row of a peer, with the reason where it did not train to the end."""
    rows = ""
    if result.rounds or result.reason is None:
        ratio = "" if result.ratio is None else format_range(result.ratio)
        rounds = str(len(result.rounds) or "")
        rows = _row({**peer_row(result), "ratio": ratio, "rounds": rounds})
    if result.reason is not None:
        version = list_cell("version", result.version or "")
        reason = list_cell("reason", result.reason, columns=len(_KEYS) - 2)
        rows += f"<tr>{row_head(result.peer)}{version}{reason}</tr>"
    return rows


def _row(row: Row) -> str:
    cells = (list_cell(_TITLES.get(key, key), row.get(key, "")) for key in _KEYS[1:])
    return f"<tr>{row_head(row['peer'])}{''.join(cells)}</tr>"
