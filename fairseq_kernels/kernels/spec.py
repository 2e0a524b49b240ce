"""Reads what users write: mixtures such as "3xlin,log" and hyper-parameters such as "log.p=2,rbf.scale=learned"."""

import re
from typing import Dict, List, Mapping, Sequence, Tuple, Union

from .base import KERNELS, Kernel, Learned

MOST = 1000  # components of a mixture

KernelSpec = Union[str, Sequence[str]]
ParameterSpec = Union[None, str, Mapping]


def parse_kernels(spec: KernelSpec) -> List[str]:
    """Names of a mixture's components: "3xlin,log" gives ["lin", "lin", "lin", "log"].

    Raises:
        ValueError: an unknown kernel, or not of the form ``[Nx]NAME,[Nx]NAME,...``.
    """
    parts = spec.split(",") if isinstance(spec, str) else list(spec)
    names: List[str] = []
    for part in parts:
        match = re.fullmatch(r"\s*(?:(\d+)\s*[x*]\s*)?([A-Za-z_]\w*)\s*", str(part))
        if not match:
            raise ValueError(f"kernels={spec!r}: {str(part)!r} is not [Nx]NAME; write for instance lin, or 3xlin,log")
        count, name = int(match[1] or 1), match[2]
        if name not in KERNELS:
            raise ValueError(f"unknown kernel {name!r}; choose from {', '.join(KERNELS)}")
        if not 1 <= count <= MOST - len(names):
            raise ValueError(
                f"kernels={spec!r}: {str(part)!r} asks for {count} components; give 1 to {MOST} in all"
            )
        names += [name] * count
    if not names:
        raise ValueError("kernels is empty; write for instance lin, or 3xlin,log")
    return names


def parse_value(text: object, name: str) -> Union[float, Learned]:
    """A number, ``learned`` or ``learned:START``."""
    if isinstance(text, Learned):
        return text
    word, _, start = str(text).strip().partition(":")
    try:
        if word == "learned":
            return Learned(float(start) if start else None)
        return float(str(text))
    except ValueError:
        raise ValueError(f"{name}={text} is not allowed: give a number, learned, or learned:START") from None


def parse_parameters(spec: ParameterSpec) -> Dict[str, Dict[str, Union[float, Learned]]]:
    """Hyper-parameters by kernel: "log.p=2,rbf.gamma=0.1" gives {"log": {"p": 2.0}, "rbf": {"gamma": 0.1}}.

    Also takes mappings, flat ({"log.p": 2}) or nested ({"log": {"p": 2}}).

    Raises:
        ValueError: an unknown kernel or parameter, one given twice, or a value that is neither a number nor
            ``learned[:START]``.
    """
    if not spec:
        return {}
    pairs: List[Tuple[str, object]] = []
    if isinstance(spec, Mapping):
        for key, value in spec.items():
            inner = value.items() if isinstance(value, Mapping) else [("", value)]
            pairs += [(f"{key}.{name}" if name else str(key), number) for name, number in inner]
    else:
        for part in filter(None, (part.strip() for part in spec.split(","))):
            name, equals, value = part.partition("=")
            if not equals:
                raise ValueError(f"kernel parameter {part!r} has no value; write KERNEL.NAME=VALUE, as in log.p=2")
            pairs.append((name.strip(), value))
    values: Dict[str, Dict[str, Union[float, Learned]]] = {}
    for name, value in pairs:
        kernel, _, parameter = name.partition(".")
        if kernel not in KERNELS:
            raise ValueError(f"kernel parameter {name!r}: unknown kernel {kernel!r}; choose from {', '.join(KERNELS)}")
        known = [hyper.name for hyper in KERNELS[kernel].all_hyperparameters()]
        if parameter not in known:
            choices = ", ".join(f"{kernel}.{other}" for other in known)
            raise ValueError(f"unknown kernel parameter {name!r}; {kernel} has {choices}")
        if parameter in values.get(kernel, {}):
            raise ValueError(f"kernel parameter {name!r} is given twice; give one value")
        values.setdefault(kernel, {})[parameter] = parse_value(value, name)
    return values


def build_kernels(kernels: KernelSpec, embed_dim: int, parameters: ParameterSpec = None) -> List[Kernel]:
    """The components of a mixture, each a kernel of its own (learned hyper-parameters are not shared).

    Raises:
        ValueError: as :func:`parse_kernels` and :func:`parse_parameters`; a parameter of a kernel outside the mixture;
            a value outside its domain.
    """
    values, names = parse_parameters(parameters), parse_kernels(kernels)
    for kernel in values.keys() - set(names):
        [first, *_] = values[kernel]
        raise ValueError(
            f"kernel parameter '{kernel}.{first}' is of a kernel that kernels={kernels!r} lacks; leave it out, or "
            f"add {kernel}"
        )
    return [KERNELS[name](embed_dim, **values.get(name, {})) for name in names]
