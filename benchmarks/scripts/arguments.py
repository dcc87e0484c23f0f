"""What the scripts are told."""

from __future__ import annotations

import json
import sys
from typing import Any


def arguments() -> dict[str, Any]:
    """The JSON object that is the script's only argument."""
    return json.loads(sys.argv[1])
