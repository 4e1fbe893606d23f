from django.db import migrations

# One row for every changed row that the snapshot holds, written by triggers so that no writer can forget it, and one
# notification at commit. `xid` is the writing transaction: a reader asks for all rows from the oldest transaction that
# was still open at its last look, so that a commit out of order is not missed.
TRIGGERS = """
    ALTER TABLE relay_change ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();
    ALTER TABLE relay_change ALTER COLUMN created_at SET DEFAULT now();
    CREATE INDEX change_by_transaction ON relay_change (xid);

    CREATE FUNCTION relay_note_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = public, pg_temp AS $$
    DECLARE
        kind text := TG_ARGV[0];
        col text := TG_ARGV[1];
    BEGIN
        IF TG_OP <> 'INSERT' THEN
            INSERT INTO relay_change (kind, row_id) VALUES (kind, (to_jsonb(OLD) ->> col)::bigint);
        END IF;
        IF TG_OP <> 'DELETE' AND (TG_OP = 'INSERT' OR to_jsonb(OLD) ->> col IS DISTINCT FROM to_jsonb(NEW) ->> col) THEN
            INSERT INTO relay_change (kind, row_id) VALUES (kind, (to_jsonb(NEW) ->> col)::bigint);
        END IF;
        PERFORM pg_notify('yizhan_changes', '');
        RETURN NULL;
    END $$;

    CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON accounts_organization
        FOR EACH ROW EXECUTE FUNCTION relay_note_change('organization', 'id');
    CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON accounts_key
        FOR EACH ROW EXECUTE FUNCTION relay_note_change('key', 'id');
    CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON relay_upstream
        FOR EACH ROW EXECUTE FUNCTION relay_note_change('upstream', 'id');
    CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON relay_model
        FOR EACH ROW EXECUTE FUNCTION relay_note_change('model', 'id');
    CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON relay_route
        FOR EACH ROW EXECUTE FUNCTION relay_note_change('model', 'model_id');
    CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON billing_price
        FOR EACH ROW EXECUTE FUNCTION relay_note_change('price', 'id');
    CREATE TRIGGER note_change AFTER INSERT ON billing_posting
        FOR EACH ROW WHEN (NEW.kind <> 'usage') EXECUTE FUNCTION relay_note_change('organization', 'organization_id');
"""


class Migration(migrations.Migration):
    dependencies = [
        ("relay", "0001_initial"),
        ("accounts", "0002_row_security"),
        ("billing", "0003_row_security"),
    ]

    operations = [migrations.RunSQL(TRIGGERS, migrations.RunSQL.noop)]
