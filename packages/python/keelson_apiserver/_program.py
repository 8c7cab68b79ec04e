"""Finds the program."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

PROGRAM_VARIABLE = "KEELSON_PROGRAM"
PROGRAM = "keelson"


def find_program() -> str:
    """Returns the path of the program.

    That is the one that ``KEELSON_PROGRAM`` names, else the one that was installed with this package,
    else the first on the PATH.
    """
    named = os.environ.get(PROGRAM_VARIABLE)
    if named:
        return named
    # The scripts of this interpreter, and those of `pip install --user` and `--target`.
    folders = [Path(sysconfig.get_path("scripts"))]
    user_scheme = sysconfig.get_preferred_scheme("user")
    folders.append(Path(sysconfig.get_path("scripts", user_scheme)))
    folders.append(Path(__file__).resolve().parents[1] / "bin")
    for folder in folders:
        program = folder / PROGRAM
        if os.access(program, os.X_OK):
            return str(program)
    found = shutil.which(PROGRAM)
    if found is None:
        raise FileNotFoundError(
            f"there is no program {PROGRAM!r} in {folders[0]} nor on the PATH;"
            f" {PROGRAM_VARIABLE} may name it"
        )
    return found
