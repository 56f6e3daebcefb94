"""What is timed, against what, printed as ratios: ``python -m benchmarks``."""

import logging

# bitsandbytes warns at import about an optional kernel for 4-bit inference on CPUs.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
