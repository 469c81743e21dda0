"""``python -m benchmarks``: measure, print the tables, and keep them."""

import os

# one thread, before anything that starts some
for _name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "RAYON"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"

from benchmarks.main import main  # noqa: E402

if __name__ == "__main__":
    main()
