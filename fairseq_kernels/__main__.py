"""``python -m fairseq_kernels`` prints the folder for ``--user-dir``; ``--list`` what it registers."""

import argparse
from pathlib import Path

from . import KERNELS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fairseq_kernels", description=__doc__.replace("``", ""))
    parser.add_argument("--list", action="store_true", help="list kernels with their parameters, archs and criterions")
    if not parser.parse_args().list:
        print(Path(__file__).resolve().parent)
        return
    print("kernels")
    for name, kernel in KERNELS.items():
        parameters = " ".join(f"{name}.{h.name}={h.default:g}" for h in kernel.all_hyperparameters())
        print(f"  {name:4} {kernel.__name__:20} {parameters}")
    try:
        from fairseq.criterions import CRITERION_REGISTRY
        from fairseq.models import ARCH_MODEL_REGISTRY
    except ImportError:
        print("fairseq is not installed: layers only")
        return
    for title, registry in (("architectures", ARCH_MODEL_REGISTRY), ("criterions", CRITERION_REGISTRY)):
        print(title)
        for name, registered in sorted(registry.items()):
            if registered.__module__.startswith(__package__):
                print(f"  {name}")


if __name__ == "__main__":
    main()
