"""matplotlib for pictures that go to files."""

import logging


def file_pyplot():
    """``pyplot`` without a screen and without its debug lines: fairseq's import sets the root logger to DEBUG."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # letters as text: half the size, and they can be searched
    from matplotlib import pyplot

    return pyplot
