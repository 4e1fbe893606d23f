"""The people, keys and calls that the console's tests are about.

acme: ann (owner), adam (admin), fay (finance), erin (employee, holds the key `laptop`); keys `ci` (ann's), `laptop`,
`manager` (may manage). bolt: bob (owner), key `bolt-ci`. oli operates the site with the key `operator`. sam is nobody.
"""

import json
import random
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection, transaction

from accounts import scope
from accounts.models import Key, Member, Organization, Scope, User
from accounts.permissions import SYSTEM
from accounts.services.keys import KeyTerms, create_key
from accounts.services.members import add_member
from accounts.services.organizations import create_organization
from billing.ledger import book_opening_credit
from billing.models import Price, UsageRecord
from billing.roll_ups import roll_up
from relay.models import Model

PASSWORD = "a long enough password"
RNG = random.Random(20261201)


@dataclass
class Cast:
    """`clear` has the clear text of each key by its name."""

    acme: Organization
    bolt: Organization
    members: dict[str, Member]
    users: dict[str, User]
    keys: dict[str, Key]
    clear: dict[str, str]
    price: Price

    def call(self, key: str = "ci", **fields: Any) -> UsageRecord:
        """One finished call of this key, a minute ago unless `created_at` says otherwise."""
        return self.calls([{"key": key, **fields}])[0]

    def calls(self, each: Iterable[dict[str, Any]]) -> list[UsageRecord]:
        return insert_calls([self._record(dict(fields)) for fields in each])

    def _record(self, fields: dict[str, Any]) -> dict[str, Any]:
        key = self.keys[fields.pop("key", "ci")]
        moment = fields.pop("created_at", datetime.now(UTC) - timedelta(minutes=1))
        moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        return {
            **_USUAL,
            "id": call_id(moment),
            "created_at": moment,
            "organization_id": key.organization_id,
            "member_id": key.member_id,
            "key_id": key.pk,
            "currency": key.organization.currency,
            "price_version": self.price.pk,
            **fields,
        }


_USUAL: dict[str, Any] = {
    "task_id": "",
    "client": "openai-python",
    "endpoint": "/v1/chat/completions",
    "model": "kimi-k2",
    "protocol": "openai",
    "upstream_id": 1,
    "upstream": "secret-account",
    "upstream_model": "kimi-k2-0905",
    "answered_model": "kimi-k2-0905",
    "upstream_request_id": "req_secret",
    "service_tier": "",
    "reasoning_effort": "",
    "stream": True,
    "status": "ok",
    "http_status": 200,
    "error_kind": "",
    "end_reason": "stop",
    "attempts": [
        {
            "upstream": "secret-account",
            "upstream_model": "kimi-k2-0905",
            "result": "ok",
            "ms": 1800.0,
            "http_status": 200,
        }
    ],
    "uncached_input_tokens": 1000,
    "cached_input_tokens": 3000,
    "cache_write_5m_tokens": 0,
    "cache_write_30m_tokens": 0,
    "cache_write_1h_tokens": 0,
    "output_tokens": 200,
    "reasoning_tokens": 50,
    "cache_type": "",
    "usage_source": "reported",
    "usage_flags": [],
    # 0.85 x (1,000 x 4 + 3,000 x 1 + 200 x 16) / 1,000,000
    "amount_nano": 8_670_000,
    "cost_nano": 8_160_000,
    "total_ms": 2000.0,
    "ttft_ms": 700.0,
    "ttfb_ms": 300.0,
    "stages": {
        "auth": 0.1,
        "receive": 4.9,
        "route": 1.0,
        "permit": 1.0,
        "connect": 43.0,
        "upstream_wait": 200.0,
        "prefill": 450.0,
        "decode": 1290.0,
        "relay_overhead": 10.0,
    },
    "posting_id": None,
}
_JSON = ("attempts", "stages")


def call_id(moment: datetime) -> uuid.UUID:
    """A UUIDv7 of this moment."""
    ms = int(moment.timestamp() * 1000)
    return uuid.UUID(
        int=(ms << 80) | (7 << 76) | (RNG.getrandbits(12) << 64) | (2 << 62) | RNG.getrandbits(62)
    )


def insert_calls(records: list[dict[str, Any]]) -> list[UsageRecord]:
    """Write usage records as the ingesting role does, the only one that may."""
    names = list(records[0])
    row = "(" + ", ".join(["%s"] * len(names)) + ")"
    values = [
        json.dumps(record[name]) if name in _JSON else record[name] for record in records for name in names
    ]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE relay_ingest")
        cursor.execute(
            f"INSERT INTO billing_usagerecord ({', '.join(names)}) VALUES " + ", ".join([row] * len(records)),
            values,
        )
        cursor.execute("SET LOCAL ROLE relay_app")
    return [UsageRecord(**record) for record in records]


def insert_many_calls(
    cast: Cast, count: int, *, apart: str = "2 seconds", more: Mapping[str, str] | None = None
) -> None:
    """Many calls of acme and of bolt, one every two seconds back from now, made by the database itself.

    `more` has SQL for further columns; `n` counts the calls from 1, the newest.
    """
    template = cast.calls([{"key": "ci"}])[0]
    other = cast.keys["bolt-ci"]
    columns = [
        field.attname
        for field in UsageRecord._meta.concrete_fields
        if field.attname not in ("created_at", "id")
    ]
    changed = {
        "organization_id": f"CASE WHEN n %% 5 = 0 THEN {other.organization_id} ELSE organization_id END",
        "key_id": f"CASE WHEN n %% 5 = 0 THEN {other.pk} WHEN n %% 3 = 0 THEN {cast.keys['laptop'].pk} ELSE key_id END",
        "member_id": (
            f"CASE WHEN n %% 5 = 0 THEN NULL WHEN n %% 3 = 0 THEN {cast.members['erin'].pk} ELSE member_id END"
        ),
        "model": "CASE WHEN n %% 7 = 0 THEN 'deepseek-v4' ELSE model END",
        "ttft_ms": "100 + (n::bigint * 7919) %% 3000",
        "total_ms": "400 + (n::bigint * 7919) %% 9000",
        **(more or {}),
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE relay_ingest")
        cursor.execute(
            f"""
            INSERT INTO billing_usagerecord (created_at, id, {", ".join(columns)})
            SELECT moment, (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '7'
                   || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid,
                   {", ".join(changed.get(name, name) for name in columns)}
            FROM billing_usagerecord,
                 LATERAL (SELECT n, date_trunc('milliseconds', now() - n * interval '{apart}') AS moment
                          FROM generate_series(1, %s) AS n) AS series
            WHERE id = %s
            """,
            [count, template.id],
        )
        cursor.execute(roll_up("billing_usagerecord"))
        cursor.execute("SET LOCAL ROLE relay_owner")
        cursor.execute("ANALYZE billing_usagerecord, billing_usagehour")
        cursor.execute("SET LOCAL ROLE relay_app")


def make_cast(password: str | None = None) -> Cast:
    """Everybody, their keys, two models with one price and 100 CNY in acme's wallet.

    Nobody can sign in without a `password`: hashing seven of them takes longer than most tests.
    """
    members, keys, clear = {}, {}, {}
    with scope.site("tests"):
        acme = create_organization(acting=SYSTEM, name="acme", title="Acme Ltd", currency="CNY")
        bolt = create_organization(acting=SYSTEM, name="bolt", title="Bolt GmbH", currency="EUR")
        for name, organization, role in (
            ("ann", acme, "owner"),
            ("adam", acme, "admin"),
            ("fay", acme, "finance"),
            ("erin", acme, "employee"),
            ("bob", bolt, "owner"),
        ):
            members[name] = add_member(
                acting=SYSTEM,
                organization=organization,
                email=f"{name}@example.com",
                role=role,
                password=password,
            )
        users = {name: member.user for name, member in members.items()}
        users["oli"] = User.objects.create_user("oli@example.com", password, is_operator=True)
        users["sam"] = User.objects.create_user("sam@example.com", password)
        for name, organization, member, scopes in (
            ("ci", acme, "ann", [Scope.CALL]),
            ("laptop", acme, "erin", [Scope.CALL]),
            ("manager", acme, None, [Scope.MANAGE]),
            ("bolt-ci", bolt, None, [Scope.CALL]),
            ("bolt-manager", bolt, "bob", [Scope.MANAGE]),
            ("operator", acme, None, [Scope.OPERATE]),
        ):
            terms = KeyTerms(member=members[member] if member else None, scopes=tuple(scopes))
            made = create_key(acting=SYSTEM, organization=organization, name=name, terms=terms)
            keys[name], clear[name] = made.key, made.clear
        book_opening_credit(acting=SYSTEM, organization=acme, amount_nano=100 * 10**9)
    for model in ("deepseek-v4", "kimi-k2"):
        Model.objects.create(name=model)
    price = Price.objects.create(
        model_name="kimi-k2",
        currency="CNY",
        input=Decimal("4.00"),
        cached_input=Decimal("1.00"),
        output=Decimal("16.00"),
        discount=Decimal("0.85"),
    )
    return Cast(acme, bolt, members, users, keys, clear, price)
