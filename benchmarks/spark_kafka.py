"""The jars by which Spark reads Kafka: pinned, and fetched once, as those of the servers are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.peers import PeerUnavailable
from etl_assets.errors import RuntimeMissing
from etl_assets.runtime.jars import Jar, jars_folder
from etl_assets.runtime.java import find_java
from etl_assets.stack.jar_set import JarSet

PINS = Path(__file__).parent / "requirements" / "spark-kafka.json"


def spark_kafka_jars() -> tuple[Path, ...]:
    """The jars.

    Raises:
        PeerUnavailable: they cannot be fetched.
    """
    pins = tuple(Jar(**each) for each in json.loads(PINS.read_text("utf-8")))
    jars = JarSet(title="Spark's Kafka source", folder=jars_folder() / "spark-kafka", jars=pins)
    try:
        jars.ensure(find_java(), lambda line: print(line, file=sys.stderr))
    except RuntimeMissing as error:
        raise PeerUnavailable(str(error)) from error
    return tuple(jars.folder / jar.file_name for jar in pins)
