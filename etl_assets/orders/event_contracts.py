"""Event contracts: the payload of each event type, version by version.

`schema_version` selects the contract; a chain of upcasters converts older versions to the newest fields.
Fields that the contract does not name stay in the payload and are ignored. To change a payload: raise
`newest_version`, name the new fields, and add one `Upcaster` that defines how the previous version's fields
become the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from etl_assets.errors import ContractError
from etl_assets.orders.order_status import OrderStatus


class EventType(StrEnum):
    """Event types of the order life cycle, as on the wire."""

    ORDER_CREATED = "OrderCreated"
    PAYMENT_PROCESSED = "PaymentProcessed"
    ITEM_SHIPPED = "ItemShipped"
    ORDER_DELIVERED = "OrderDelivered"
    ORDER_CANCELED = "OrderCanceled"


class PayloadColumn(StrEnum):
    """Columns of normalized_orders that come from the payload."""

    AMOUNT = "amount"
    CURRENCY = "currency"
    CUSTOMER_ID = "customer_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadField:
    """A payload field and the column it fills."""

    name: str
    column: PayloadColumn
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcaster:
    """The conversion of fields from version n to version n + 1.

    Attributes:
        from_version: n.
        renamed: New name to old name.
        defaults: New fields, and their values for older events.
    """

    from_version: int
    renamed: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of a newest-version field in an older payload: a field, or a default."""

    field: str | None
    default: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventContract:
    """One event type.

    Attributes:
        status: The status that an order has reached with this event.
        fields: The payload fields of the newest version.
        newest_version: Events of a higher version are dead letters until the code knows the version.
        upcasters: One for each version below the newest.
    """

    status: OrderStatus
    fields: tuple[PayloadField, ...] = ()
    newest_version: int = 1
    upcasters: tuple[Upcaster, ...] = ()

    def __post_init__(self) -> None:
        versions = tuple(upcaster.from_version for upcaster in self.upcasters)
        if versions != tuple(range(1, self.newest_version)):
            raise ContractError(
                f"the event contract for {self.status} knows version {self.newest_version} and has upcasters"
                f" from {versions or 'none'}",
                fix="give one upcaster for each version below the newest, in order",
            )

    def origin(self, field: str, version: int) -> Origin:
        """Return where a payload of `version` has a field of the newest version.

        Walks the upcasters backwards.
        """
        name = field
        for upcaster in reversed(self.upcasters[version - 1 :]):
            if name in upcaster.defaults:
                return Origin(field=None, default=upcaster.defaults[name])
            name = upcaster.renamed.get(name, name)
        return Origin(field=name, default=None)

    def payload_names(self) -> Iterator[str]:
        """Yield every payload field that any version's value is read from, possibly more than once."""
        for payload_field in self.fields:
            for version in range(1, self.newest_version + 1):
                name = self.origin(payload_field.name, version).field
                if name is not None:
                    yield name


_AMOUNT = PayloadField(name="amount", column=PayloadColumn.AMOUNT, required=True)
_CURRENCY = PayloadField(name="currency", column=PayloadColumn.CURRENCY, required=False)

EVENT_CONTRACTS: Mapping[EventType, EventContract] = MappingProxyType(
    {
        EventType.ORDER_CREATED: EventContract(
            status=OrderStatus.CREATED,
            fields=(
                PayloadField(name="customer_id", column=PayloadColumn.CUSTOMER_ID, required=True),
                _AMOUNT,
                _CURRENCY,
            ),
        ),
        EventType.PAYMENT_PROCESSED: EventContract(status=OrderStatus.PAID, fields=(_AMOUNT, _CURRENCY)),
        EventType.ITEM_SHIPPED: EventContract(status=OrderStatus.SHIPPED),
        EventType.ORDER_DELIVERED: EventContract(status=OrderStatus.DELIVERED),
        EventType.ORDER_CANCELED: EventContract(status=OrderStatus.CANCELED),
    }
)
