"""matplotlib for pictures that go to files."""

import logging
from typing import Dict


def file_pyplot():
    """``pyplot`` without a screen and without its debug lines: fairseq's import sets the root logger to DEBUG."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # letters as text: half the size, and they can be searched
    from matplotlib import pyplot

    return pyplot


def log_scale(axis) -> None:
    """A logarithmic scale of what is drawn, upwards, with numbers as they are usually written."""
    from matplotlib.ticker import LogLocator

    axis.set_yscale("log")
    bottom, top = axis.get_ylim()
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 3) if top > 10 * bottom else range(1, 10)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("")


def end_labels(axis, lines: Dict, apart: float = 0.06) -> None:
    """Names lines at their last points, at least ``apart`` of the axis' height from each other.

    Args:
        lines: matplotlib's, by the names to write.
    """
    axis.autoscale_view()
    lowest = -1.0
    to_height = axis.transData + axis.transAxes.inverted()
    heights = {name: to_height.transform(line.get_xydata()[-1])[1] for name, line in lines.items()}
    for name in sorted(heights, key=heights.get):
        lowest = max(heights[name], lowest + apart)
        axis.text(1.02, lowest, name, color=lines[name].get_color(), transform=axis.transAxes, va="center")
