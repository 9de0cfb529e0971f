"""Builds the compiled kernel of topics with a C++ compiler, where there is one.

One library for each instruction set, all without Python's headers, so a wheel serves every Python
of its platform. Without a compiler the package is complete but for speed: topics then run on XLA.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/lowerbound/topics/native")
FLAGS = [
    "-std=c++17", "-O3", "-fPIC", "-shared", "-pthread",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wno-psabi",
]  # fmt: skip
VARIANTS = {
    "x86_64": {
        "v4": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
        "v3": ["-march=x86-64-v3"],
        "base": [],
    }
}


class KernelHook(BuildHookInterface):
    """Hatchling's hook: compile, and put the libraries into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before files are collected; a failure is told and is no error."""
        if self.target_name != "wheel":
            return None
        folder = Path(self.root) / FOLDER
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
        if compiler is None:
            return self.tell("no C++ compiler found")
        machine = {"AMD64": "x86_64"}.get(platform.machine(), platform.machine())
        variants = VARIANTS.get(machine, {"base": []})
        commands = [
            [compiler, *FLAGS, *flags, f"-DVARIANT={name}", str(folder / "kernels.cpp"),
             str(folder / "dispatch.cpp"), "-o", str(folder / f"kernels_{name}.so")]
            for name, flags in variants.items()
        ]  # fmt: skip
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            runs = pool.map(lambda c: subprocess.run(c, capture_output=True, text=True), commands)
        failed = [run.stderr for run in runs if run.returncode]
        if failed:
            for library in folder.glob("kernels_*.so"):
                library.unlink()
            return self.tell(failed[0])
        build_data["artifacts"] += [f"{FOLDER}/kernels_{name}.so" for name in variants]
        build_data["pure_python"] = False
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{tag}"
        return None

    def tell(self, why: str) -> None:
        """Say on the console of the build why the kernel was left out."""
        print(f"lowerbound: the compiled kernel of topics is not built: {why}", file=sys.stderr)
