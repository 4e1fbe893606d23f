from django.db import migrations

from accounts.row_security import enable

# A key's member belongs to the key's organization: the pair is the reference.
SAME_ORGANIZATION = """
    ALTER TABLE accounts_member ADD CONSTRAINT member_by_organization UNIQUE (organization_id, id);
    ALTER TABLE accounts_key ADD CONSTRAINT key_member_is_of_its_organization
        FOREIGN KEY (organization_id, member_id) REFERENCES accounts_member (organization_id, id)
        DEFERRABLE INITIALLY DEFERRED;
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [
        migrations.RunSQL(SAME_ORGANIZATION, migrations.RunSQL.noop),
        migrations.RunSQL(
            enable("accounts_organization", column="id") + enable("accounts_member") + enable("accounts_key"),
            migrations.RunSQL.noop,
        ),
    ]
