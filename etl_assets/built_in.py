"""The pipelines that come with the platform: the one module outside their folders that names them.

Importing it imports none of them, so that a quick command pays for none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl_assets.pipelines.connection_rights import ConnectionRights
    from etl_assets.pipelines.pipeline import Pipeline

NAMES = ("orders",)
"""Names of the built-in pipelines. The platform file says which of them an installation runs."""

COMMANDS = {
    "demo": "etl_assets.orders.cli.demo:demo",
    "events": "etl_assets.orders.cli.events:events",
}
"""Import paths of the commands that built-in pipelines contribute, also where an installation leaves them
out.
"""


def demo_over_servers(stack: str, ui: Sequence[str]) -> int:
    """Run a demo over real servers and open the UI on it.

    Args:
        stack: `full`, or `cdc`: PostgreSQL alone, whose tables a capture follows.
        ui: Options of `etl-assets dev`.

    Returns:
        The exit code.
    """
    if stack == "cdc":
        from etl_assets.stack.cdc_demo.command import TRANSACTIONS, run_cdc_demo

        return run_cdc_demo(transactions=TRANSACTIONS, as_json=False, ui=ui)
    from etl_assets.orders.stack_demo.command import EVENTS, run_full_stack

    return run_full_stack(events=EVENTS, as_json=False, ui=ui)


def built_in_pipelines(connections: Sequence[ConnectionRights] = ()) -> tuple[Pipeline, ...]:
    """Return the built-in pipelines, in the order of `NAMES`.

    Args:
        connections: All connections; some of the platform file give a built-in pipeline a sink.
    """
    from etl_assets.orders.delivery import with_delivery
    from etl_assets.orders.pipeline import ORDERS

    return (with_delivery(ORDERS, [each for each in connections if each.tenant is None]),)
