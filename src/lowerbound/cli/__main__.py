"""`python -m lowerbound.cli`."""

import sys

from lowerbound.cli.commands import main

sys.exit(main())
