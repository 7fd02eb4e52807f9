"""XML schemas of layer 2, and a validator made of them by lxml: a second opinion on documents.

`xml_reader.py` judges documents that arrive; tests hold it equal to these schemas.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from lxml import etree

FOLDER = Path(__file__).parent / "schema"
"""protocol.xsd: the three messages. complex.xsd: values of complex types. Both include primitive.xsd."""


def text(name: str) -> bytes:
    """The text of one schema: primitive, protocol or complex."""
    return (FOLDER / f"{name}.xsd").read_bytes()


class _Included(etree.Resolver):
    """Finds schemas in the folder, and nothing anywhere else."""

    def resolve(self, url, _public_id, context):
        return self.resolve_string(text(url.rpartition("/")[2].removesuffix(".xsd")), context)


@cache
def schema(name: str) -> etree.XMLSchema:
    parser = _parser()
    parser.resolvers.add(_Included())
    return etree.XMLSchema(etree.fromstring(text(name), parser, base_url=f"wirelake:/{name}.xsd"))


def is_valid(document: bytes, name: str = "protocol") -> bool:
    """Whether a document is well-formed, has no DOCTYPE and fits a schema."""
    try:
        root = etree.fromstring(document, _parser())
    except etree.XMLSyntaxError:
        return False
    return not root.getroottree().docinfo.doctype and bool(schema(name).validate(root))


def _parser() -> etree.XMLParser:
    return etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
