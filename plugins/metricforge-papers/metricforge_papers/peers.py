"""Run metric-learn for comparison, in an environment of its own, because it needs an older scikit-learn.

Its results are stored in the same folder under a digest of the split, because some of its fits take a minute.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

NEEDS = ("metric-learn==0.7.0", "scikit-learn<1.8", "numpy")

LOOP = """
import json, signal, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
folder, seconds, jobs = sys.argv[1], int(sys.argv[2]), sys.stdin.read().split()
{code}
done = set()
try:
    done = {{json.loads(line)["job"] for line in open(folder + "/results.jsonl")}}
except FileNotFoundError:
    pass
def expired(*_):
    raise TimeoutError(f"over {{seconds}} s")
signal.signal(signal.SIGVTALRM, expired)
for job in jobs:
    if job in done:
        continue
    peer, split, _ = job.split("/")
    z = np.load(f"{{folder}}/{{split}}.npz")
    started, error, M, percent = time.process_time(), "", None, None
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        M = learn(peer, z)
    except Exception as e:
        error = f"{{type(e).__name__}}: {{e}}"
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    spent = time.process_time() - started
    if M is not None and np.isfinite(M).all():
        percent = score(M, z)
        np.save(f"{{folder}}/{{job.replace('/', '-')}}.npy", M)
    with open(folder + "/results.jsonl", "a") as out:
        out.write(json.dumps({{"job": job, "percent": percent, "seconds": spent, "error": error}}) + "\\n")
"""


def environment() -> Path | None:
    """Return the Python with metric-learn, installed at the first call; None if that fails."""
    home = cache() / "venv"
    python = home / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
            subprocess.run([str(python), "-m", "pip", "install", "-q", *NEEDS], check=True, capture_output=True)
        subprocess.run([str(python), "-c", "import metric_learn"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return python


def cache() -> Path:
    """Return the folder of the environment and its results."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "metricforge" / "peers"


def peer_results(
    benchmark: str,
    code: str,
    peers: Sequence[str],
    parts: Mapping[str, Mapping[str, np.ndarray]],
    seconds: int,
    *,
    fresh: bool = False,
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return percent, CPU seconds and array of the fit by (peer, split); empty if the environment is not available.

    ``code`` defines ``learn(peer, z)``, which returns an array, and ``score(array, z)``, which returns a percentage; z
    holds the arrays of ``parts`` for the split.  A fit over ``seconds`` of CPU time on one thread counts as failed.
    ``fresh`` repeats fits whose results are stored, so that their times are of this run.
    """
    python = environment()
    if python is None:
        return {}
    folder = cache() / benchmark
    folder.mkdir(parents=True, exist_ok=True)
    if fresh:
        (folder / "results.jsonl").unlink(missing_ok=True)
    digests = {}
    for split, part in parts.items():
        np.savez(folder / f"{split}.npz", **part)  # type: ignore[arg-type] # a name could be an option's
        content = b"".join(np.ascontiguousarray(a).tobytes() for a in part.values())
        digests[split] = hashlib.sha256(content).hexdigest()[:12]
    jobs = [f"{peer}/{split}/{digest}" for peer in peers for split, digest in digests.items()]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [str(python), "-c", LOOP.format(code=code), str(folder), str(seconds)]
    subprocess.run(command, input=" ".join(jobs), text=True, check=True, env=one_thread)
    lines = (folder / "results.jsonl").read_text().splitlines()
    known = {found["job"]: found for found in map(json.loads, lines)}
    return {(job.split("/")[0], job.split("/")[1]): {**known[job], "array": _array(folder, job)} for job in jobs}


def _array(folder: Path, job: str) -> np.ndarray | None:
    """Return what a peer learned, if it was stored."""
    path = folder / f"{job.replace('/', '-')}.npy"
    return np.load(path) if path.is_file() else None
