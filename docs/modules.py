"""Print the packages and modules of this project, each with the first sentence of its docstring::

make modules
"""

import ast
import re
import signal
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("beanstalk_twisted", "binlog_tools")
INDENT: Final = "    "
COLUMN: Final = 32
"""Where the descriptions begin."""


def first_sentence(module: Path) -> str:
    """Give the first sentence of a module's docstring.

    :raise ValueError: it has none.
    """
    docstring = ast.get_docstring(ast.parse(module.read_text()))
    if not docstring:
        raise ValueError(f"{module} has no docstring")
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"(?<=\.) ", paragraph)[0]


def show(package: Path, depth: int = 0) -> None:
    """Print a package: its own line, its modules, then the packages in it."""
    indent = INDENT * depth
    print(f"{indent + package.name + '/':{COLUMN}}  {first_sentence(package / '__init__.py')}")
    for module in sorted(package.glob("*.py")):
        if module.name != "__init__.py":
            print(f"{indent + INDENT + module.stem:{COLUMN}}  {first_sentence(module)}")
    for inner in sorted(path.parent for path in package.glob("*/__init__.py")):
        show(inner, depth + 1)


if __name__ == "__main__":
    # `| head` ends it without a traceback.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for name in PACKAGES:
        show(ROOT / name)
