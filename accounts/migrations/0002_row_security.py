from django.db import migrations

from accounts.row_security import enable


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [
        migrations.RunSQL(
            enable("accounts_organization", column="id") + enable("accounts_member") + enable("accounts_key"),
            migrations.RunSQL.noop,
        ),
    ]
