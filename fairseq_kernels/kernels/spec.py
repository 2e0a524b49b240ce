"""Reads what users write: mixtures such as "3xlin,log" and hyper-parameters such as "log.p=2,rbf.scale=learned"."""

import re
from typing import Dict, List, Mapping, Sequence, Tuple, Union

from ..errors import similar
from .base import KERNELS, Kernel, Learned

KernelSpec = Union[str, Sequence[str]]
ParameterSpec = Union[None, str, Mapping]
MOST = 1000  # components of a mixture


def parse_kernels(spec: KernelSpec) -> List[str]:
    """Names of a mixture's components: "3xlin,log" gives ["lin", "lin", "lin", "log"]."""
    parts = spec.split(",") if isinstance(spec, str) else spec
    names: List[str] = []
    for part in parts:
        match = re.fullmatch(r"\s*(?:(\d+)\s*[x*]\s*)?([A-Za-z_]\w*)\s*", str(part))
        if not match:
            raise ValueError(f"kernels={spec!r}: {str(part)!r} is not [Nx]NAME; write for instance lin, or 3xlin,log")
        count, name = int(match[1] or 1), match[2]
        if name not in KERNELS:
            raise ValueError(f"unknown kernel {name!r}{similar(name, KERNELS) or ';'} choose from {', '.join(KERNELS)}")
        if not 1 <= count <= MOST - len(names):
            raise ValueError(f"kernels={spec!r}: {str(part)!r} asks for {count} components; give 1 to {MOST} in all")
        names += [name] * count
    if not names:
        raise ValueError("kernels is empty; write for instance lin, or 3xlin,log")
    return names


def component_names(kernels: Sequence[str]) -> List[str]:
    """Kernels, numbered where one occurs more than once: ["lin", "lin", "log"] gives ["lin1", "lin2", "log"]."""
    return [f"{n}{[*kernels[:i], n].count(n)}" if kernels.count(n) > 1 else n for i, n in enumerate(kernels)]


def kernel_of(component: str) -> str:
    """The kernel of a component: "lin2" gives "lin"; a kernel's own name may end with digits, too."""
    shorter = [component[:end] for end in range(len(component), 0, -1) if component[end:].isdigit()]
    return next((name for name in (component, *shorter) if name in KERNELS), component.rstrip("0123456789"))


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
        shown = " ".join(str(text).split())
        raise ValueError(f"{name}={shown} is not allowed: give a number, learned, or learned:START") from None


def parse_parameters(spec: ParameterSpec) -> Dict[str, Dict[str, Union[float, Learned]]]:
    """Hyper-parameters by kernel or component: "log.p=2,rbf1.gamma=0.1" gives {"log": {"p": 2.0}, "rbf1": {"gamma":
    0.1}}.

    Mappings, flat ({"log.p": 2}) or nested ({"log": {"p": 2}}), say the same.
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
        component, _, parameter = name.partition(".")
        kernel = kernel_of(component)
        if not parameter:
            raise ValueError(f"kernel parameter {name!r} names no kernel; write {'KERNEL.' + name!r}, as in log.p")
        if kernel not in KERNELS:
            raise ValueError(
                f"kernel parameter {name!r}: unknown kernel {component!r}; choose from {', '.join(KERNELS)}"
            )
        known = [hyper.name for hyper in KERNELS[kernel].all_hyperparameters()]
        if parameter not in known:
            choices = ", ".join(f"{component}.{other}" for other in known)
            raise ValueError(f"unknown kernel parameter {name!r}; {component} has {choices}")
        if parameter in values.get(component, {}):
            raise ValueError(f"kernel parameter {name!r} is given twice; give one value")
        values.setdefault(component, {})[parameter] = parse_value(value, name)
    return values


def build_kernels(kernels: KernelSpec, embed_dim: int, parameters: ParameterSpec = None) -> List[Kernel]:
    """The components of a mixture, each a kernel of its own (learned hyper-parameters are not shared). A component's
    own value ("rbf2.gamma=10") wins over its kernel's ("rbf.gamma=1").

    Raises:
        ValueError: also for a hyper-parameter of a kernel or component that the mixture doesn't have.
    """
    values, names = parse_parameters(parameters), parse_kernels(kernels)
    for name in values.keys() - set(names) - set(component_names(names)):
        said = f"kernel parameter '{name}.{next(iter(values[name]))}' belongs to no component of kernels={kernels!r}"
        raise ValueError(f"{said}; leave it out, or add {kernel_of(name)} to the kernels")
    return [
        KERNELS[name](embed_dim, **{**values.get(name, {}), **values.get(component, {})})
        for name, component in zip(names, component_names(names))
    ]
