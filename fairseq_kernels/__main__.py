"""``python -m fairseq_kernels`` prints the folder for ``--user-dir``; ``--list`` what it registers; ``--configs`` the
profiles' folder; ``--patches`` what the plugin changes in fairseq, as docs/patches.md has it."""

import argparse
import warnings
from pathlib import Path

from .errors import CommandParser, mistake, similar


def main() -> None:
    parser = CommandParser(prog="python -m fairseq_kernels", description=__doc__.replace("``", ""))
    parser.add_argument("--list", action="store_true", help="list kernels, architectures, criterions and optimizers")
    parser.add_argument("--user-dir", help="with --list: your own --user-dir folder, to list its kernels, too")
    parser.add_argument("--criterion", metavar="OUTPUT_LAYER", help="print an output layer's criterion")
    parser.add_argument(
        "--configs", action="store_true", help="print the profiles' folder, with lm/ and mt/, for fairseq-hydra-train"
    )
    parser.add_argument("--patches", action="store_true", help="print what the plugin changes in fairseq, in Markdown")
    args = parser.parse_args()
    if args.user_dir and not args.list:
        parser.error("--user-dir goes with --list")
    if args.criterion:
        from .output_layers import LAYERS

        if args.criterion not in LAYERS:
            parser.error(f"no output layer {args.criterion}{similar(args.criterion, LAYERS)}")
        print(LAYERS[args.criterion].criterion)
    elif args.list:
        list_registered(args)
    elif args.patches:
        print(patches_page(), end="")
    elif args.configs:
        folder = Path(__file__).resolve().parent
        print(folder / "configs" if (folder / "configs").is_dir() else folder.parent / "configs")
    else:
        print(Path(__file__).resolve().parent)


def list_registered(args: argparse.Namespace) -> None:
    """Prints kernels with their hyper-parameters, and what is registered with fairseq, if that is installed."""
    warnings.simplefilter("ignore", FutureWarning)  # newer torch has them about what fairseq does on import
    try:
        from fairseq.utils import import_user_module
    except ImportError:
        import_user_module = None
    else:
        from . import fairseq_plugin  # noqa: F401
    if args.user_dir and import_user_module is None:
        raise mistake("--user-dir needs fairseq, which is not installed")
    if args.user_dir:
        try:
            import_user_module(args)
        except FileNotFoundError:
            raise mistake(f"--user-dir {args.user_dir} not found; give a folder") from None
    from .kernels import KERNELS

    print("kernels")
    for name, kernel in KERNELS.items():
        parameters = " ".join(f"{name}.{h.name}={h.default:g}" for h in kernel.all_hyperparameters())
        print(f"  {name:4} {kernel.__name__:20} {parameters}")
    if import_user_module is None:
        print("fairseq is not installed: layers only")
        return
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.optim import OPTIMIZER_REGISTRY

    for title, registry in (
        ("architectures", ARCH_MODEL_REGISTRY),
        ("criterions", CRITERION_REGISTRY),
        ("optimizers", OPTIMIZER_REGISTRY),
    ):
        print(title)
        for name, registered in sorted(registry.items()):
            if registered.__module__.startswith(__package__):
                print(f"  {name}")


def patches_page() -> str:
    """The content of docs/patches.md."""
    from . import fairseq_plugin  # noqa: F401
    from .patches import PATCHES

    upstream = "https://github.com/facebookresearch/fairseq/issues"
    lines = [
        "# What the plugin changes in fairseq\n",
        "With `--user-dir` the plugin replaces these parts of fairseq, also for fairseq's own models. The code is in",
        "`fairseq_kernels/patches/`, a file a subject; `python -m fairseq_kernels --patches` prints this page.\n",
        "| file | changed | what fairseq does | what went wrong for a user | upstream |",
        "| --- | --- | --- | --- | --- |",
    ]
    for patch in PATCHES:
        does, lost = " ".join(patch.function.__doc__.split()).split(" Lost: ")
        owner = patch.owner
        module = getattr(owner, "__module__", None)
        place = f"{module}.{owner.__name__}." if module else f"{owner.__name__}." if owner else ""
        issue = f"[{patch.issue}]({upstream}/{patch.issue})" if patch.issue else ""
        subject = patch.function.__module__.rpartition(".")[2]
        lines.append(f"| {subject} | `{place}{patch.name}` | {does} | {lost} | {issue} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
