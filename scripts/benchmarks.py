"""What the benchmarks share: options, rounds through all rows, and the record after the others in a file."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

from fairseq_kernels.analysis.measurement import measured, provenance
from fairseq_kernels.errors import CommandParser, one_line_errors, positive_int
from fairseq_kernels.experiments.files import check_folder
from fairseq_kernels.experiments.old_results import append, load


def options(description: str, out: str = "JSON file, gets the record after its others") -> CommandParser:
    """A parser with the options of all; ``out`` is the help of --out."""
    parser = CommandParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--threads", type=positive_int, help="of torch on the CPU (default: torch's own choice)")
    parser.add_argument("--out", type=Path, help=out)
    return parser


def check(path: Path) -> None:
    """Ends the program, before the measurement, where a record can't be put into this file."""
    with one_line_errors():
        load(path)
        check_folder(f"--out {path}", path.parent)


def in_turn(build: Callable, rows: Dict[str, Tuple[Dict, Dict]], args: argparse.Namespace) -> None:
    """Measures ``build``'s steps for every row in turn, ``args.rounds`` times.

    Args:
        rows: by name, the row and the arguments of ``build``. The row gets all ``steps``' seconds, of these the least
            (``seconds``), and ``mebibytes``; or why it can't be measured (``error``).
    """
    for round_ in range(args.rounds):
        for name, (row, arguments) in rows.items():
            if "error" in row:
                continue
            try:
                result = measured(build, arguments, args.steps, args.threads, args.device)
            except RuntimeError as error:
                row["error"] = str(error)
                print(f"round {round_ + 1}: {name}: {error}", file=sys.stderr)
                continue
            row["steps"] = row.get("steps", []) + [round(second, 5) for second in result["seconds"]]
            row["seconds"] = min(row["steps"])
            peaks = [peak for peak in (row.get("mebibytes"), result["mebibytes"]) if peak is not None]
            row["mebibytes"] = round(max(peaks), 1) if peaks else None
            best = min(result["seconds"])
            print(f"round {round_ + 1}: {name}: {best:.3f} s, {row['mebibytes']} MiB", file=sys.stderr)


def keep(path: Path, threads: Optional[int] = None, **record) -> None:
    """Puts a record with its command and origin after the others in a file."""
    command = shlex.join(["python", f"scripts/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    append(path, {"command": command, "made": provenance(threads), **record})
