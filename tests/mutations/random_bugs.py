"""Draws bugs at random, by the operators of cosmic-ray, for run.py to try: a JSON list.

    python3 -m venv /tmp/cosmic && /tmp/cosmic/bin/python -m pip install cosmic-ray
    /tmp/cosmic/bin/python tests/mutations/random_bugs.py 60 >bugs.json
    PYTHONPATH=. .venv/bin/python tests/mutations/run.py --bugs bugs.json --out results/random_mutations.json

A place in the code is drawn first, then what is done to it; no place is drawn twice.
"""

import ast
import json
import random
import re
import sys
from pathlib import Path

import parso  # noqa: F401  (cosmic_ray alone imports it in a circle)
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[2]
SEED = 1
# bit operations, remainders and powers in the place of a sum or product fail at once, whatever is tested; variables ask
# for arguments
USELESS = re.compile(r"Variable|Bit|Shift|_Mod|_Pow|FloorDiv|Invert|USub_Not|UAdd")
NUMERICS, TRAINING = "tests/numerics/test_{}.py", "tests/training/test_{}.py"
KERBS = [NUMERICS.format("kerbs"), TRAINING.format("fairseq_kerbs")]
SPHERICAL = [NUMERICS.format("spherical"), NUMERICS.format("factored"), TRAINING.format("fairseq_spherical")]
KERNELS = [NUMERICS.format(name) for name in ("kernels", "fused", "observed", "properties")]
LAYERS = [NUMERICS.format(name) for name in ("generalized_softmax", "loss_options", "many_words", "fused", "observed")]
OPTIONS = ["tests/options"]
MODELS = [TRAINING.format(name) for name in ("fairseq_lm", "transformer", "tiny_translation")]
TESTS = {  # of files and folders; the first that fits counts
    "kernels/": KERNELS + OPTIONS,
    "fused/": KERNELS + LAYERS + [NUMERICS.format("fusion"), NUMERICS.format("matrix_products")],
    "output_layers/kerbs": KERBS,
    "output_layers/sense_allocation": KERBS,
    "output_layers/spherical": SPHERICAL,
    "output_layers/factored": SPHERICAL,
    "output_layers/": LAYERS + SPHERICAL[:1] + KERBS[:1],
    "criterions/": LAYERS + MODELS + SPHERICAL[2:] + KERBS[1:],
    "optim/": [TRAINING.format("fused_adamw")],
    "models/": OPTIONS + MODELS + KERBS[1:],
    "word_counts": OPTIONS + MODELS[:1],
}


def places(file: str):
    """(line, column), operator and its how-many-th use of all that may be changed in a file."""
    tree = get_ast((ROOT / file).read_text(encoding="utf-8"))
    for name in operator_names():
        if not USELESS.search(name):
            operator = get_operator(name)()
            positions = (start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node))
            for occurrence, start in enumerate(positions):
                yield start, name, occurrence


def replacement(text: str, changed: str):
    """The lines that differ, with as many about them as make them the text's only ones, before and after."""
    before, after = text.splitlines(keepends=True), changed.splitlines(keepends=True)
    start = next(n for n, (one, other) in enumerate(zip(before, after)) if one != other)
    end = next(n for n, (one, other) in enumerate(zip(before[::-1], after[::-1])) if one != other)
    while True:
        old = "".join(before[start : len(before) - end])
        if text.count(old) == 1:
            return old, "".join(after[start : len(after) - end])
        start, end = max(start - 1, 0), max(end - 1, 0)


def main() -> None:
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "fairseq_kernels").rglob("*.py"))
    tests = {file: next((t for part, t in TESTS.items() if f"fairseq_kernels/{part}" in file), None) for file in files}
    drawn = {}
    for file in filter(tests.get, files):
        for start, name, occurrence in places(file):
            drawn.setdefault((file, start), []).append((name, occurrence))
    draw, number, bugs = random.Random(SEED), int(sys.argv[1]), []
    for file, start in draw.sample(sorted(drawn), len(drawn)):
        name, occurrence = draw.choice(drawn[file, start])
        text = (ROOT / file).read_text(encoding="utf-8")
        changed = mutate_code(text, get_operator(name)(), occurrence)
        if ast.dump(ast.parse(text)) != ast.dump(ast.parse(changed)):
            old, new = replacement(text, changed)
            bugs.append({"file": file, "old": old, "new": new, "tests": " ".join(tests[file])})
        if len(bugs) == number:
            break
    print(json.dumps(bugs, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
