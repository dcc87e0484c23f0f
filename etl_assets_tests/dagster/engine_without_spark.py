"""The engine with a process that sleeps in the place of Spark's JVM: all else is the engine's own. `python
-m`, as a command.
"""

from __future__ import annotations

from etl_assets.cli.engine import engine
from etl_assets.engine import engine as module
from etl_assets.engine.spark_server import SparkServer


def main() -> None:
    SparkServer._command = lambda self, config: ["sleep", "300"]
    SparkServer.listens = lambda self: True
    module._rehearse = lambda: None  # ty: ignore[invalid-assignment]
    engine()


if __name__ == "__main__":
    main()
