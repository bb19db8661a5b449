"""Limits on the structure of the sources, which linters do not check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "fkge"


def modules() -> dict[str, Path]:
    found = {}
    for path in SOURCES.rglob("*.py"):
        parts = path.relative_to(SOURCES.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def definitions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield name, node


def test_no_import_cycles_not_even_lazy_ones() -> None:
    known = modules()
    imports: dict[str, set[str]] = {}
    for name, path in known.items():
        imports[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                imports[name] |= {
                    full if (full := f"{node.module}.{alias.name}") in known else node.module for alias in node.names
                }
            elif isinstance(node, ast.Import):
                imports[name] |= {alias.name for alias in node.names}
        imports[name] = {other for other in imports[name] if other in known and other != name}
    assert len(imports) > 100
    list(TopologicalSorter(imports).static_order())  # raises CycleError, which names the cycle


def test_every_module_has_a_unit_test_of_its_name() -> None:
    tests, missing = Path(__file__).parent, []
    for path in modules().values():
        place = path.relative_to(SOURCES)
        made = path.stem.endswith("_pb2") or path.stem.startswith("__")
        if not made and not (tests / place.parent / f"test_{path.stem}.py").exists():
            missing.append(str(place))
    assert missing == []


def test_modules_have_at_most_500_lines() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules().items()}
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def test_classes_have_at_most_25_methods() -> None:
    methods = {
        f"{module}.{node.name}": sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)
        for module, node in definitions()
        if isinstance(node, ast.ClassDef)
    }
    assert {name: count for name, count in methods.items() if count > 25} == {}


def test_functions_outside_kernels_have_at_most_12_parameters() -> None:
    found = {}
    for module, node in definitions():
        if isinstance(node, ast.ClassDef) or "kernels" in module:
            continue
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count > 12:
            found[f"{module}.{node.name}"] = count
    assert found == {}
