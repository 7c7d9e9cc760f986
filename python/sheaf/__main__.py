"""The command `sheaf` that comes with this module: `python -m sheaf`, and `sheaf` where pip installed it."""

import os
import sys
from pathlib import Path


def main() -> None:
    command = str(Path(__file__).parent / "native" / "sheaf")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
