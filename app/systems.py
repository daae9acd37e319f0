"""Systems as people name several of them."""

from __future__ import annotations


def systems_named(text: str) -> tuple[str, ...]:
    """Return the systems of a list with commas; `all` is all of the catalogue.

    >>> systems_named("dgx-h100, mine.yaml")
    ('dgx-h100', 'mine.yaml')
    """
    from ..backends.machine.files.catalogue import names

    if text.strip() == "all":
        return names("systems")
    return tuple(dict.fromkeys(one for one in map(str.strip, text.split(",")) if one))
