import django.db.models.deletion
from django.db import migrations, models

from accounts.row_security import enable, grant_ingest

# Rows of the present hour are written again and again: room on their pages keeps such a write off the index.
RULES = """
    ALTER TABLE billing_usagehour SET (fillfactor = 70);
    REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON billing_usagehour FROM relay_app;
"""
# As billing.roll_ups did it when this was written; the migration runs once, before any process writes hours.
FILL = """
    INSERT INTO billing_usagehour (organization_id, hour, member_id, model, ttft_class, calls, errors, input_tokens,
                                   cached_tokens, output_tokens, amount_nano)
    SELECT organization_id, date_trunc('hour', created_at, 'UTC'), seen_by, model,
           CASE WHEN seen_by <> 0 THEN -2 WHEN ttft_ms IS NULL THEN -1
                ELSE floor(10 * log(GREATEST(ttft_ms, 1)))::smallint END,
           count(*), count(*) FILTER (WHERE status NOT IN ('ok', 'client_gone')),
           sum(uncached_input_tokens + cached_input_tokens + cache_write_5m_tokens + cache_write_30m_tokens
               + cache_write_1h_tokens),
           sum(cached_input_tokens), sum(output_tokens), sum(amount_nano)
    FROM billing_usagerecord CROSS JOIN LATERAL (VALUES (0::bigint), (member_id)) AS seen(seen_by)
    WHERE seen_by IS NOT NULL
    GROUP BY 1, 2, 3, 4, 5;
"""
SUM = {"default": 0}


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_row_security"),
        ("billing", "0005_price_versions_without_gaps"),
    ]

    operations = [
        migrations.CreateModel(
            name="UsageHour",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "organization",
                        "hour",
                        "member_id",
                        "model",
                        "ttft_class",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("member_id", models.BigIntegerField()),
                ("model", models.CharField(max_length=200)),
                ("ttft_class", models.SmallIntegerField()),
                ("calls", models.BigIntegerField(**SUM)),
                ("errors", models.BigIntegerField(**SUM)),
                ("input_tokens", models.BigIntegerField(**SUM)),
                ("cached_tokens", models.BigIntegerField(**SUM)),
                ("output_tokens", models.BigIntegerField(**SUM)),
                ("amount_nano", models.BigIntegerField(**SUM)),
                (
                    "organization",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="accounts.organization",
                    ),
                ),
            ],
        ),
        migrations.RunSQL(
            enable("billing_usagehour")
            + grant_ingest("billing_usagehour", "SELECT", "INSERT", "UPDATE")
            + RULES
            + FILL,
            migrations.RunSQL.noop,
        ),
    ]
