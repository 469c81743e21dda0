"""Data larger than memory: the default effect from a Parquet file.

It is computed by threads and by a Dask cluster.

``python large_data.py --folder /scratch`` writes the files there, which take 180 bytes per record,
and removes them afterwards. Times are of the whole command; those of the processor count where
others use the machine as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

COVARIATES = 20
_CHUNK = 500_000
_DOMAIN = 'outcome_bound = 4.0\noutcome_column = "y"\n[treatment]\ncolumn = "a"\n[ranges]\n'
#: Two workers against one, of one thread each.
_CLUSTER = """
import json, os, sys, time
from distributed import Client, LocalCluster
import dask
from dp2erm_cvx import BlockedDataset, Budget, PrivateEffect, load_domain

def used(): return sum(os.times()[:2])
def busy():
    numbers = [int(one) for one in open("/proc/stat").readline().split()[1:9]]
    return (sum(numbers) - numbers[3] - numbers[4]) / 100

if __name__ == "__main__":
    path, domain, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # else each array of more than 128 kB is taken from the system and given back
    allocator = {
        "MALLOC_TRIM_THRESHOLD_": 2**28,
        "MALLOC_MMAP_THRESHOLD_": 2**25,
        "OMP_NUM_THREADS": 1,
    }
    dask.config.set({"distributed.nanny.pre-spawn-environ": allocator})
    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            data = BlockedDataset.read(path, treatment="a", outcome="y")
            model = PrivateEffect(load_domain(domain), Budget(1.0), residual_scale=0.5, seed=1)
            all, own, theirs, began = busy(), used(), sum(client.run(used).values()), time.time()
            found = {"estimate": model.fit(data).effect_, "seconds": time.time() - began}
            found["client"] = used() - own
            found["workers' processor"] = sum(client.run(used).values()) - theirs
            # what takes a processor from those who are measured
            found["others"] = busy() - all - found["client"] - found["workers' processor"]
            print(json.dumps(found))
"""


def write_records(path: Path, n_samples: int) -> None:
    """Confounded records with an effect of 1, in row groups that no block begins with."""
    import pyarrow as pa
    from pyarrow import parquet

    rng, writer = np.random.default_rng(0), None
    names = [*(f"x{k + 1}" for k in range(COVARIATES)), "a", "y"]
    for begin in range(0, n_samples, _CHUNK):
        n = min(_CHUNK, n_samples - begin)
        X = rng.uniform(-1.0, 1.0, (n, COVARIATES))
        a = rng.binomial(1, 1.0 / (1.0 + np.exp(-X[:, 0])))
        y = X[:, 0] + a + 0.5 * rng.standard_normal(n)
        table = pa.table([*X.T.copy(), a, y], names=names)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def measured(words: list[str]) -> dict[str, Any]:
    """Seconds, processor seconds and largest memory of a process, and the load at its start."""
    load, began = os.getloadavg()[0], time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        one = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(one.pid, 0)
        seconds = time.perf_counter() - began
        out.seek(0)
        text = out.read()
    if status:
        raise SystemExit(text)
    processor = used.ru_utime + used.ru_stime
    return {
        "seconds": seconds,
        "processor": processor,
        "gigabytes": used.ru_maxrss / 1e6,
        "load": load,
        "out": text,
    }


def effect(path: Path, study: Path, *more: str) -> dict[str, Any]:
    """The default effect of the command line."""
    command = "import sys; from dp2erm_cvx.cli import main; main(sys.argv[1:])"
    words = ["run", str(study), str(path), "--seed", "1", "--json", "--force", *more]
    return measured([sys.executable, "-c", command, *words])


def main() -> None:
    """Measure, and print one line of JSON for every run."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    words.add_argument("--records", type=int, help="20 million, those of a cluster 1 million")
    words.add_argument("--few", type=int, default=1_000_000)
    words.add_argument(
        "--cluster",
        action="store_true",
        help="two Dask workers against one, in turns, on the records",
    )
    words.add_argument("--stay", action="store_true", help="leave the files")
    args = words.parse_args()
    many = args.records or (args.few if args.cluster else 20_000_000)
    sizes = [many] if args.cluster else [args.few, many]
    paths = [args.folder / f"records_{n}.parquet" for n in sizes]
    study = args.folder / "records.toml"
    ranges = "".join(f"x{k + 1} = [-1.0, 1.0]\n" for k in range(COVARIATES))
    study.write_text(f"{_DOMAIN}{ranges}[budget]\nepsilon = 1\n[[effect]]\nresidual_scale = 0.5\n")
    try:
        for path, n in zip(paths, sizes, strict=True):
            if not path.exists():
                write_records(path, n)
        if args.cluster:
            for workers in (1, 2, 1, 2):
                run = measured(
                    [sys.executable, "-c", _CLUSTER, str(paths[0]), str(study), str(workers)]
                )
                print(
                    json.dumps(
                        {
                            "workers": workers,
                            **json.loads(run["out"].splitlines()[-1]),
                            "load": run["load"],
                        }
                    ),
                    flush=True,
                )
            return
        few, many = ((path, n, "always") for path, n in zip(paths, sizes, strict=True))
        runs = [few, few, many, few, few]  # the speed of a machine drifts while many are read
        for path, n, blocks in [(paths[0], args.few, "never"), *runs]:
            run = effect(path, study, "--blocks", blocks)
            del run["out"]
            print(
                json.dumps(
                    {"n": n, "blocks": blocks, **run, "per million": run["processor"] / n * 1e6}
                ),
                flush=True,
            )
    finally:
        if not args.stay:
            for path in [*paths, study]:
                path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
