"""Files beside the code say what the code says: workflows, hooks, citation, the guide."""

import re
import tomllib

from tests.matrix import COMBINATIONS, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_the_workflow_runs_the_suite_on_every_python_and_every_combination() -> None:
    text = (ROOT / ".github/workflows/test.yml").read_text("utf-8")
    found = re.findall(r'- \{ python: "([\d.]+)", jax: "([\d.]+)" \}', text)
    assert found == [(row.python, row.jax) for row in COMBINATIONS]
    [pythons] = re.findall(r"^ +python: \[(.*)\]$", text, re.MULTILINE)
    assert re.findall(r"[\d.]+", pythons) == sorted({row.python for row in COMBINATIONS})


def test_workflows_call_make_alone() -> None:
    workflows = sorted(ROOT.glob(".github/workflows/*.yml"))
    assert workflows
    for path in workflows:
        commands = re.findall(r"run: (.*)", path.read_text("utf-8"))
        assert commands
        for command in commands:
            assert command.startswith("make PYTHON=python ")
            assert command.split()[2] in TARGETS


def test_hooks_are_what_make_runs_and_download_nothing() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    assert re.findall(r"repo: (.*)", text) == ["local"]
    entries = re.findall(r"entry: \.venv/bin/(.*)", text)
    hooks = {entry.replace(" --force-exclude", "") for entry in entries}
    _, _, recipes = MAKEFILE.partition("\nlint: setup\n")
    lint, _, _ = recipes.partition("\nformat: setup\n")
    made = {re.sub(r" (--check \.|\.)$", "", line) for line in re.findall(r"\$\(BIN\)/(.*)", lint)}
    assert hooks == made


def test_the_citation_is_of_this_project() -> None:
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    said = dict(re.findall(r"^(\w+): (.+)$", text, re.MULTILINE))
    assert said["title"] == PROJECT["name"]
    assert said["version"] == PROJECT["version"]
    assert said["license"] == PROJECT["license"]
    assert re.findall(r"^  - name: (.*)$", text, re.MULTILINE) == [
        author["name"] for author in PROJECT["authors"]
    ]


def test_the_guide_names_commands_and_folders_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    commands = set(re.findall(r"\bmake ([a-z-]+)", text))
    assert {"setup", "test", "test-slow"} <= commands <= TARGETS
    for name in re.findall(r"^\| .* \| .*`([a-z/._]+)`.*\|$", text, re.MULTILINE):
        places = [ROOT / name, ROOT / "src/lowerbound" / name, ROOT / f"src/lowerbound/{name}.py"]
        assert any(place.exists() for place in places), name
