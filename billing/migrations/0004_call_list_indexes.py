from django.db import migrations

# What the list of calls is searched along (console.calls.search), each with its moment and id behind it, so that a page
# is read in its order. Rare things have partial indexes: an ordinary call is written into none of them. The bounds of
# the slow ones are repeated in `billing.models`. Two indexes go: the primary key, read backwards, serves the list of
# the site as well, and a call is looked up by its id together with the moment inside it.
CREATE = """
    CREATE INDEX usage_of_key ON billing_usagerecord (organization_id, key_id, created_at DESC, id DESC);
    CREATE INDEX usage_of_member ON billing_usagerecord (organization_id, member_id, created_at DESC, id DESC)
        WHERE member_id IS NOT NULL;
    CREATE INDEX usage_of_model ON billing_usagerecord (organization_id, model, created_at DESC, id DESC);
    CREATE INDEX usage_of_task ON billing_usagerecord (organization_id, task_id, created_at DESC, id DESC)
        WHERE task_id <> '';
    CREATE INDEX usage_of_error ON billing_usagerecord (organization_id, error_kind, created_at DESC, id DESC)
        WHERE error_kind <> '';
    CREATE INDEX usage_not_ok ON billing_usagerecord (organization_id, created_at DESC, id DESC)
        WHERE status <> 'ok';
    CREATE INDEX usage_slow_start ON billing_usagerecord (organization_id, created_at DESC, id DESC)
        WHERE ttft_ms >= 2000;
    CREATE INDEX usage_slow ON billing_usagerecord (organization_id, created_at DESC, id DESC)
        WHERE total_ms >= 20000;
    DROP INDEX usage_newest_of_site, usage_by_id;
"""
DROP = """
    CREATE INDEX usage_newest_of_site ON billing_usagerecord (created_at DESC, id DESC);
    CREATE INDEX usage_by_id ON billing_usagerecord (id);
    DROP INDEX usage_of_key, usage_of_member, usage_of_model, usage_of_task, usage_of_error, usage_not_ok,
        usage_slow_start, usage_slow;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_row_security")]

    operations = [migrations.RunSQL(CREATE, DROP)]
