"""`python -m jetraft.api.cli.prepare` makes the first start as fast as the later ones, and ends.

It imports every module, so that Python writes the byte code of all that a server may load, of the standard library and
the dependencies too, and it saves the code of classes and of modules (`api/startup/class_code.py`,
`api/startup/module_code.py`). `make setup` and the image run it; it is of use wherever those who start servers may not
write where the package is, or have PYTHONDONTWRITEBYTECODE set. Code that cannot be written is left out. Modules of
extras that are not installed are named and skipped; any other module that is missing fails the command.
"""

import importlib
import os
import pkgutil
import sys
from contextlib import suppress

import jetraft
from jetraft.api.startup import class_code, module_code
from jetraft.api.startup.class_code import ClassCode
from jetraft.api.startup.kept_code import beside
from jetraft.api.startup.module_code import ModuleCode

CODECS = ("encodings.ascii", "encodings.idna")  # which Python loads when it first meets such a text


def main() -> int:
    """Returns the exit status."""
    if sys.dont_write_bytecode:  # what is loaded by now was not written
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        os.execve(sys.executable, [sys.executable, "-m", "jetraft.api.cli.prepare"], env)  # noqa: S606  this very program
    for source, ending in ((class_code.__file__, ".classes"), (module_code.__file__, ".modules")):
        with suppress(OSError):
            beside(source, ending).unlink()  # it may have what is past
    modules = ModuleCode.install()
    code = ClassCode.install()
    for name in CODECS:
        importlib.import_module(name)
    from jetraft.store.model.extras import missing_extra  # noqa: PLC0415  its classes are kept like all others

    skipped = []
    for found in pkgutil.walk_packages(jetraft.__path__, "jetraft."):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            extra = missing_extra(error)
            if extra is None:
                raise
            skipped.append(f"{found.name}: {extra.advice}")
    code.save()
    modules.save()
    for name in skipped:
        sys.stderr.write(f"jetraft: not prepared: {name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
