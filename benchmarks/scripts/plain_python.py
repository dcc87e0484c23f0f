"""What the machine itself gains by a second core: the same plain Python work by one process, or by one for
each core.
"""

from __future__ import annotations

import multiprocessing
import os

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments

ROUNDS = 200_000_000
"""Of all processes together: some five seconds of one core."""


def main() -> None:
    cores: list[int] = arguments()["cores"]
    forking = multiprocessing.get_context("fork")
    processes = [forking.Process(target=_work, args=(core, ROUNDS // len(cores))) for core in cores]
    mark("began")
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode != 0:
            raise RuntimeError(f"a process ended with {process.exitcode}")
    mark("done")


def _work(core: int, rounds: int) -> None:
    os.sched_setaffinity(0, {core})
    total = 0
    for number in range(rounds):
        total += number & 7


if __name__ == "__main__":
    main()
