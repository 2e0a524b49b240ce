"""Writes docs/api.md, the reference of the public names, from the signatures and docstrings in the source.

    python docs/api_reference.py >docs/api.md
"""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "fairseq_kernels"
REFERENCE = {  # chapter: names and the methods of each that are shown
    "Output layers": {
        "OutputLayer": ["forward", "nll", "evaluate", "set_prior", "reset_parameters"],
        "distill": [],
        "GeneralizedSoftmax": ["from_linear", "extend_vocabulary", "mixture_weights", "component_names"],
        "SphericalFamily": [],
        "TaylorSoftmax": [],
        "SphericalSoftmax": [],
        "SquaredError": [],
        "SoftmaxBound": [],
        "KerBSoftmax": ["set_num_updates"],
        "AllocationSettings": [],
    },
    "The words' prior": {"word_prior": []},
    "Very large vocabularies": {"factored": [], "FactoredSpherical": [], "FactoredSGD": ["step"]},
    "Hugging Face": {"replace_head": [], "from_pretrained": []},
    "Own output layers": {"register_output_layer": [], "Options": ["arguments"], "option": []},
    "Own kernels": {
        "Kernel": ["queries", "word_terms", "context_terms", "similarity", "value", "learned"],
        "Hyperparameter": [],
        "register_kernel": [],
    },
}
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises):$")


def definitions():
    """Classes and functions of the package by name, each with the class or module that it stands in."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                found.setdefault(node.name, node)
    return found


def signature(name: str, function: ast.FunctionDef) -> str:
    """``name(argument, option=default)``, without types, as a block of Python."""
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    arguments = ast.unparse(function.args)
    arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    line = f"{name}({arguments})"
    if len(line) > 100:
        line = f"{name}(\n    " + ",\n    ".join(split(arguments)) + ",\n)"
    return f"```py\n{line}\n```\n"


def split(arguments: str):
    """The arguments one by one; commas within brackets part none."""
    return re.split(r", (?![^(\[]*[)\]])", arguments)


def markdown(docstring: str) -> str:
    """A docstring with its sections as lists."""
    text = re.sub(r":(?:meth|class|func|mod|data|attr):`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", docstring)
    text = re.sub(r"``(.+?)``", r"`\1`", text, flags=re.S)
    text = re.sub(r"::\n", ":\n", text)
    lines, section = [], None
    for line in text.splitlines():
        if heading := SECTION.match(line):
            section = heading[1]
            lines += [f"**{section}**", ""]
        elif section and line.startswith("    "):
            entry = re.match(r"    (\S+(?:, \S+)?): (.*)", line) if section != "Returns" else None
            lines.append(f"- `{entry[1]}`: {entry[2]}" if entry else re.sub("^ +", "  " * (section != "Returns"), line))
        else:
            section = section if not line else None
            lines.append(line)
    return "\n".join(lines).strip() + "\n"


def method(node, name: str, known):
    """A class' method, its own or a base's; None if neither has it."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == name:
            return each
    bases = [known[ast.unparse(base)] for base in getattr(node, "bases", []) if ast.unparse(base) in known]
    return next((found for base in bases if (found := method(base, name, known))), None)


def constructor(node, known):
    """The signature of a class: its ``__init__``, or a dataclass' fields; a function is its own."""
    if isinstance(node, ast.FunctionDef):
        return node
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        texts = (ast.unparse(each.target) + (f"={ast.unparse(each.value)}" if each.value else "") for each in fields)
        return ast.parse(f"def __init__({', '.join(texts)}): ...").body[0]
    return method(node, "__init__", known)


def described(node, name: str, level: int, known) -> str:
    """A heading, the signature and the docstring."""
    function = constructor(node, known)
    shown = signature(name, function) if function else ""
    return f"{'#' * level} {name}\n\n{shown}\n{markdown(ast.get_docstring(node) or '')}\n"


def reference() -> str:
    """The page."""
    known = definitions()
    text = "# API reference\n\nMade from the docstrings by `python docs/api_reference.py >docs/api.md`.\n\n"
    for chapter, names in REFERENCE.items():
        text += f"## {chapter}\n\n"
        for name, methods in names.items():
            text += described(known[name], name, 3, known)
            text += "".join(described(method(known[name], each, known), each, 4, known) for each in methods)
    return text.rstrip() + "\n"


if __name__ == "__main__":
    print(reference(), end="")
