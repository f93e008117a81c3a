"""What the scripted model knows: to read an invoice, in the format of DSPy's chat adapter."""

import re

from gepa_client.cli.model_server import Conversation

ORDERED = re.compile(r"Ordered: (\d+) (crates)?")
PRICE = re.compile(r"Price: \$(\S+) (each|per pair)")
SHIPPING = re.compile(r"Shipping: \$([\d.]+)(, express)?")


def answer(conversation: Conversation) -> str:
    instructions, invoice = conversation.instructions, conversation.last
    if "`shipping_dollars`" in instructions:
        return fields(shipping_dollars=shipping(instructions, invoice))
    ordered, price = ORDERED.search(invoice), PRICE.search(invoice)
    assert ordered is not None, "the lines of the rows"
    assert price is not None, "the lines of the rows"
    qty, unit_price = int(ordered[1]), float(price[1])
    if ordered[2] and "A crate holds 8 pieces" in instructions:
        qty *= 8
    if price[2] == "per pair" and "unit_price is half of it" in instructions:
        unit_price /= 2
    return fields(qty=qty, unit_price=unit_price)


def shipping(instructions: str, invoice: str) -> float:
    found = SHIPPING.search(invoice)
    if found is None:
        return 4.5 if "without a line for shipping ships for 4.50" in instructions else 0.0
    return float(found[1]) + (5 if found[2] and "5 dollars more" in instructions else 0)


def fields(**values: float) -> str:
    return "".join(f"[[ ## {name} ## ]]\n{value}\n\n" for name, value in values.items()) + "[[ ## completed ## ]]"
