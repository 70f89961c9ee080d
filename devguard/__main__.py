"""``python -m devguard``: the same as the ``devguard`` command."""

import sys

from devguard.cli import main

if __name__ == "__main__":
    sys.exit(main())
