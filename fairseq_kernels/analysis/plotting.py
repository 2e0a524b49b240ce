"""matplotlib for pictures that go to files."""


def file_pyplot():
    """``pyplot`` without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # letters as text: half the size, and they can be searched
    from matplotlib import pyplot

    return pyplot
