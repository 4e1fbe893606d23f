from django.db import migrations

from accounts.row_security import enable, grant_ingest

TABLES = ("billing_usagerecord", "billing_posting", "billing_ledgerentry", "billing_spenttotal")

# Usage comes in through relay_ingest only; ledger rows and prices are never changed. Entries of a posting sum
# to zero in the one currency of its organization. That is checked at commit by a definer's function, so that
# no scope can hide half of a posting from the check.
RULES = """
    REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON billing_usagerecord, billing_spenttotal FROM relay_app;
    REVOKE UPDATE, DELETE, TRUNCATE ON billing_posting, billing_ledgerentry, billing_price FROM relay_app;
    GRANT USAGE ON SEQUENCE billing_posting_id_seq TO relay_ingest;

    CREATE FUNCTION billing_posting_is_balanced() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = public, pg_temp AS $$
    DECLARE
        balanced boolean;
    BEGIN
        SELECT sum(e.amount_nano) = 0 AND bool_and(e.currency = o.currency AND e.organization_id = o.id)
        INTO balanced
        FROM billing_posting p
        JOIN accounts_organization o ON o.id = p.organization_id
        JOIN billing_ledgerentry e ON e.posting_id = p.id
        WHERE p.id = NEW.posting_id;
        IF balanced IS NOT TRUE THEN
            RAISE EXCEPTION 'posting % does not balance in the currency of its organization', NEW.posting_id
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER posting_is_balanced AFTER INSERT ON billing_ledgerentry
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION billing_posting_is_balanced();

    CREATE FUNCTION billing_currency_is_settled() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = public, pg_temp AS $$
    BEGIN
        IF EXISTS (SELECT 1 FROM billing_posting WHERE organization_id = OLD.id) THEN
            RAISE EXCEPTION 'the wallet of organization % is kept in %', OLD.name, OLD.currency
                USING ERRCODE = 'check_violation', CONSTRAINT = 'organization_currency_is_settled';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER currency_is_settled BEFORE UPDATE OF currency ON accounts_organization
        FOR EACH ROW WHEN (OLD.currency <> NEW.currency) EXECUTE FUNCTION billing_currency_is_settled();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_partition_usage"), ("accounts", "0002_row_security")]

    operations = [
        migrations.RunSQL(
            "".join(enable(table) for table in TABLES)
            + grant_ingest("billing_usagerecord", "SELECT", "INSERT")
            + grant_ingest("billing_posting", "SELECT", "INSERT")
            + grant_ingest("billing_ledgerentry", "SELECT", "INSERT")
            + grant_ingest("billing_spenttotal", "SELECT", "INSERT", "UPDATE")
            + RULES,
            migrations.RunSQL.noop,
        ),
    ]
