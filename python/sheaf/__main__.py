"""The command `sheaf` that comes with this module: `python -m sheaf`, and `sheaf` where pip installed it.

It has one command more than the program: `translate`.
"""

import os
import sys
from pathlib import Path


def main() -> None:
    if sys.argv[1:2] == ["translate"]:
        from . import translate

        sys.exit(translate.main(sys.argv[2:]))
    command = str(Path(__file__).parent / "native" / "sheaf")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
