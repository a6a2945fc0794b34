"""Check that the pins of lowest.txt are the lower bounds of pyproject.toml."""

import re
import sys
import tomllib
from pathlib import Path

root = Path(__file__).resolve().parents[1]
project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
needed = project["dependencies"] + project["optional-dependencies"]["test"]
lines = (root / ".ci" / "lowest.txt").read_text().splitlines()

bounds = dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", line).groups() for line in needed)
pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
if bounds != pins:
    sys.exit(f"pyproject.toml has the lower bounds {bounds}, but .ci/lowest.txt pins {pins}.")
print("lowest.txt agrees with pyproject.toml:", ", ".join(f"{n} {v}" for n, v in pins.items()))
