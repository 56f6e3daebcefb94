"""The algorithm needs torch and the standard library, and nothing of the Lightning shell."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lightning_dr"
HEAVY = {"lightning", "transformers", "peft", "bitsandbytes", "datasets", "torchmetrics"}
CORE = sorted(path for path in PACKAGE.glob("*.py") if path.name not in ("cli.py", "__main__.py"))


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_core_imports_nothing_heavy(path):
    tops = {name.split(".")[0] for name in imported(path)}
    assert not tops & HEAVY
    assert not any(
        name.startswith(("lightning_dr.modules", "lightning_dr.callbacks", "lightning_dr.datamodules")) for name in imported(path)
    )


def test_importing_the_core_loads_nothing_heavy():
    names = ", ".join(f"lightning_dr.{path.stem}" for path in CORE if path.stem != "__init__")
    code = f"import sys, {names}, lightning_dr.toy; print(sorted({HEAVY!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("folder", ["modules", "datamodules", "callbacks"])
def test_the_three_folders_import_relatively_so_that_a_second_copy_fails_at_once(folder):
    for path in (PACKAGE / folder).glob("*.py"):
        assert not any(name.split(".")[0] == "lightning_dr" for name in imported(path)), path
    root = PACKAGE.parent
    assert (root / folder).resolve() == PACKAGE / folder
    result = subprocess.run([sys.executable, "-c", f"import {folder}"], cwd=root, capture_output=True, text=True)
    assert "attempted relative import beyond top-level package" in result.stderr


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_stay_small(path):
    text = path.read_text()
    assert text.count("\n") <= 360, "a file has one subject"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            assert not body or body[-1].end_lineno - body[0].lineno < 62, f"{node.name} does more than one job"
