"""Runs a notebook's code and saves its figures, by their names, as docs/images/ has them.

python docs/notebook_figures.py examples/kernels.ipynb docs/images
"""

import json
import sys
from pathlib import Path


def main(notebook: Path, folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")  # nothing is shown, and figures stay
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    names: dict = {}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook}, cell {number}", "exec"), names)
    for name in pyplot.get_figlabels():
        pyplot.figure(name).savefig(folder / f"{name}.png", dpi=80, metadata={"Software": None})
        print(folder / f"{name}.png")


if __name__ == "__main__":
    if len(sys.argv) != 3 or not Path(sys.argv[1]).is_file():
        sys.exit("usage: python docs/notebook_figures.py NOTEBOOK FOLDER")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
