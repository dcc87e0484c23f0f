"""The asset customers: reference data from a file, for enrichment."""

import dagster as dg

from etl_assets.assets.attributes import attributes
from etl_assets.contracts.tables import CUSTOMERS
from etl_assets.placement.policy import Stage
from etl_assets.resources.platform import PlatformResource
from etl_assets.settings import Settings
from etl_assets.steps.load_customers import LoadCustomers


def customers_asset(settings: Settings) -> dg.AssetsDefinition:
    """Build the asset for a platform. It is read with every run of the landing sensor, and again only if it changed."""

    @dg.asset(**attributes(CUSTOMERS, settings, group="reference", daily=False, automated=False))
    def customers(context: dg.AssetExecutionContext, platform: PlatformResource) -> LoadCustomers:
        return LoadCustomers(
            context=platform.step_context(context, Stage.TRANSFORM), file=settings.customers_file
        )

    return customers
