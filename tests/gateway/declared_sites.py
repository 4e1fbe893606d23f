"""Files that declare a whole site, and who applies them to the database of the test."""

import io
from pathlib import Path

import pytest
from django.core.management import call_command

from accounts.models import Key
from billing.models import Account, LedgerEntry

KEY = "sk-yz-test-0000000000000000000000000000000000000000"
OTHER_KEY = "sk-yz-test-1111111111111111111111111111111111111111"
FILE = """
upstreams:
  - name: kimi-a
    protocol: openai
    base_url: http://127.0.0.1:9100/v1
    credential: sk-kimi-secret
    allow_private: true
models:
  - name: kimi-k2
    aliases: [moonshot-auto]
    price: {currency: CNY, input: "4.00", output: "16.00", discount: "0.85"}
    routes:
      - {upstream: kimi-a, upstream_model: kimi-k2-0905}
organizations:
  - name: acme
    title: Acme Ltd
    balance: {CNY: "100.00"}
    limits: {rpm: 100}
    members:
      - {email: ann@acme.example, role: owner, password: pa55word}
    keys:
      - {name: ci, value: VALUE, member: ann@acme.example, models: [kimi-k2], limits: {rpm: 600}}
      - {name: laptop}
""".replace("VALUE", KEY)


class Site:
    """Applies files and says what was printed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "site.yaml"

    def apply(self, text: str, **options: bool) -> list[str]:
        self.path.write_text(text)
        out = io.StringIO()
        call_command("apply", str(self.path), stdout=out, stderr=io.StringIO(), **options)
        return out.getvalue().splitlines()

    def refuse(self, text: str) -> str:
        self.path.write_text(text)
        err = io.StringIO()
        with pytest.raises(SystemExit) as caught:
            call_command("apply", str(self.path), stdout=io.StringIO(), stderr=err)
        assert caught.value.code == 1
        return err.getvalue()


def key_named(name: str) -> Key:
    return Key.objects.get(name=name, revoked_at=None)


def wallet(organization: str) -> int:
    entries = LedgerEntry.objects.filter(organization__name=organization, account=Account.WALLET)
    return sum(entry.amount_nano for entry in entries)
