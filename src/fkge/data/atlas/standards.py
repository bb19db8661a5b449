"""The standards: what ISO 3166-2, 639-3, 4217 and 15924 say beside their codes."""

from __future__ import annotations

from collections.abc import Iterator

from fkge.data.atlas.names import country, currency, package, script, slug
from fkge.data.facts import Claim

_SCOPES = {"M": "macrolanguage", "S": "special"}
_TYPES = {"A": "ancient", "C": "constructed", "E": "extinct", "H": "historical"}

_SCRIPT_KINDS = (
    "hieroglyphic-or-cuneiform",
    "right-to-left-alphabetic",
    "left-to-right-alphabetic",
    "alphasyllabic",
    "syllabic",
    "ideographic",
    "undeciphered",
    "shorthand",
)
"""By the hundreds of a script's number in ISO 15924."""


def claims() -> Iterator[Claim]:
    pycountry = package("pycountry")
    for item in pycountry.subdivisions:
        part = f"subdivision:{item.code}"
        yield part, "in_country", country(item.country_code)
        yield part, "subdivision_type", f"subdivision-type:{slug(item.type)}"
        if item.parent_code:
            yield part, "in_subdivision", f"subdivision:{item.parent_code}"
    for item in pycountry.languages:
        tongue = f"language:{item.alpha_3}"
        if item.scope in _SCOPES:
            yield tongue, "language_scope", f"language-scope:{_SCOPES[item.scope]}"
        if item.type in _TYPES:
            yield tongue, "language_type", f"language-type:{_TYPES[item.type]}"
    for item in pycountry.currencies:
        money = currency(item.alpha_3)
        yield money, "currency_unit", f"unit:{slug(item.name.split()[-1])}"
        yield money, "issued_by", country(item.alpha_3[:2])  # a currency's first two letters are its country's
    for item in pycountry.scripts:
        hundreds = int(item.numeric) // 100
        if hundreds < len(_SCRIPT_KINDS):
            yield script(item.alpha_4), "script_kind", f"script-kind:{_SCRIPT_KINDS[hundreds]}"
