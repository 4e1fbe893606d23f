"""One running product for the journeys of this folder, as a person would start it on a bare machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.product import Product

PRACTICE_KEY = "sk-yz-journey-000000000000000000000000000000000000000"
OPERATOR_KEY = "sk-yz-operate-000000000000000000000000000000000000000"

SITE = f"""
organizations:
  - name: acme
    title: Acme Ltd
    balance: {{CNY: "100.00"}}
    members:
      - {{email: ann@acme.example, role: owner, password: "correct horse battery"}}
    keys:
      - {{name: journey, value: {PRACTICE_KEY}, member: ann@acme.example, scopes: [call]}}
      - {{name: operator, value: {OPERATOR_KEY}, scopes: [operate]}}
  - name: stranger
    title: Somebody else
    balance: {{CNY: "5.00"}}
    keys:
      - {{name: foreign, value: sk-yz-foreign-00000000000000000000000000000000000000, scopes: [call, manage]}}
"""
FOREIGN_KEY = "sk-yz-foreign-00000000000000000000000000000000000000"


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """`manage.py up` with its own servers and practice models, and two organizations applied beside it."""
    folder: Path = tmp_path_factory.mktemp("product")
    folder.chmod(0o711)
    product = Product(folder)
    try:
        product.start()
        product.apply(SITE)
        yield product
    finally:
        product.close()
