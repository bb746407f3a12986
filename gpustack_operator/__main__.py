"""`python -m gpustack_operator` is the command `gpustack-operator`."""

import sys

from gpustack_operator.cli import main

sys.exit(main())
