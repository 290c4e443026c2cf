"""`python -m sfcnn` is the command `sfcnn`, for launchers that start modules."""

import sys

from sfcnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
