"""The schemas of layer 2 as data, and a validator made of them by lxml: a second opinion on documents, for whoever wants one.

Documents that arrive are judged by `reading.py`, which tests hold equal to these. Needs `lxml` (`pip install wirelake[formats]`).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

from wirelake.extras import library

__all__ = ["NAMES", "is_valid", "schema", "text"]

NAMES: Final = ("primitive", "protocol", "complex")
"""protocol: the three messages. complex: values of complex types. Both include primitive."""


def text(name: str) -> bytes:
    """One of the schemas, as it is in the package."""
    return (files(__package__) / "schema" / f"{name}.xsd").read_bytes()


@cache
def schema(name: str) -> Any:
    """An `lxml.etree.XMLSchema` of one of the schemas."""
    etree = _etree()

    class Included(etree.Resolver):  # type: ignore[misc, name-defined]
        """Finds primitive.xsd in the package, and nothing anywhere else."""

        def resolve(self, url: str, _public_id: str, context: Any) -> Any:
            """The text of a schema of ours."""
            return self.resolve_string(text(url.rpartition("/")[2].removesuffix(".xsd")), context)

    parser = _parser()
    parser.resolvers.add(Included())
    return etree.XMLSchema(etree.fromstring(text(name), parser, base_url=f"wirelake:/{name}.xsd"))


def is_valid(document: bytes, name: str = "protocol") -> bool:
    """Whether a document is well-formed, has no DOCTYPE and fits a schema; for documents one trusts: lxml keeps every name it ever saw."""
    etree = _etree()
    try:
        root = etree.fromstring(document, _parser())
    except etree.XMLSyntaxError:
        return False
    return not root.getroottree().docinfo.doctype and bool(schema(name).validate(root))


def _parser() -> Any:
    return _etree().XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)


def _etree() -> Any:
    return library("lxml.etree")
