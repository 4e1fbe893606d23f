from django.db import migrations

# The table is made anew as a partitioned one with the same columns, key and index; the keeper (billing.partitions)
# adds a partition a month. The default partition takes what no month fits, so that no record is ever refused.
PARTITION = """
    ALTER TABLE billing_usagerecord RENAME TO billing_usagerecord_plain;
    CREATE TABLE billing_usagerecord (LIKE billing_usagerecord_plain INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
        PARTITION BY RANGE (created_at);
    DROP TABLE billing_usagerecord_plain;
    ALTER TABLE billing_usagerecord ADD PRIMARY KEY (created_at, id);
    CREATE INDEX usage_newest_first ON billing_usagerecord (organization_id, created_at DESC, id DESC);
    CREATE INDEX usage_newest_of_site ON billing_usagerecord (created_at DESC, id DESC);
    CREATE INDEX usage_by_id ON billing_usagerecord (id);
    CREATE TABLE billing_usagerecord_default PARTITION OF billing_usagerecord DEFAULT;
    REVOKE ALL ON billing_usagerecord_default FROM relay_app;
    ALTER TABLE billing_usagerecord
        ADD CONSTRAINT usage_tokens_not_negative CHECK (
            uncached_input_tokens >= 0 AND cached_input_tokens >= 0 AND cache_write_5m_tokens >= 0
            AND cache_write_30m_tokens >= 0 AND cache_write_1h_tokens >= 0 AND output_tokens >= 0
            AND reasoning_tokens >= 0),
        ADD CONSTRAINT usage_amount_not_negative CHECK (amount_nano >= 0 AND cost_nano >= 0);
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial")]

    operations = [migrations.RunSQL(PARTITION, migrations.RunSQL.noop)]
