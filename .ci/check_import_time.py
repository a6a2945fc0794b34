"""Check that `import skattn` costs little beside the libraries that it stands on.

Fresh processes take turns, so that a busy machine slows both alike; what counts is the median
ratio of the time that the processor spent on each pair.
"""

import statistics
import subprocess
import sys

STATEMENTS = ("import sklearn.pipeline, scipy.optimize, pandas", "import skattn")
TURNS = 5
AT_MOST = 1.3


def seconds(statement):
    """Processor time of a statement in a fresh process."""
    timed = (
        "import time; start = time.process_time()",
        statement,
        "print(time.process_time() - start)",
    )
    program = "\n".join(timed)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main():
    """Print the times and their ratio; exit 1 where it is too large."""
    for statement in STATEMENTS:
        seconds(statement)  # compiles what has not been compiled yet
    turns = [[seconds(statement) for statement in STATEMENTS] for _ in range(TURNS)]
    ratio = statistics.median(ours / theirs for theirs, ours in turns)
    for statement, times in zip(STATEMENTS, zip(*turns, strict=True), strict=True):
        print(f"{statement}: {statistics.median(times):.2f} s")
    print(f"ratio {ratio:.2f}, at most {AT_MOST}")
    return int(ratio > AT_MOST)


if __name__ == "__main__":
    sys.exit(main())
