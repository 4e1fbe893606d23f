"""What a machine that stays away had journalled comes into the books, once."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from accounts import scope
from accounts.models import Organization
from billing.models import LedgerEntry, UsageRecord
from billing.records import CallRecord
from gateway import env
from relay.metering.journal import Journal, OpenLine
from tests.fakes.tables import empty_tables

IDS = [f"0193{n:04x}-0000-7000-8000-000000000001" for n in range(9)]


@pytest.fixture
def acme(django_db_setup: None, django_db_blocker) -> Iterator[Organization]:
    """Committed, for the command has connections of its own; emptied by the owner afterwards."""
    with django_db_blocker.unblock():
        with scope.site("test"):
            made = Organization.objects.create(name="acme", title="Acme")
        yield made
        connection.close()
        empty_tables(env.database_url())


def record(organization: Organization, number: int, **given: object) -> CallRecord:
    return CallRecord(
        id=IDS[number],
        organization_id=organization.pk,
        key_id=1,
        **{"currency": "CNY", "amount_nano": 100, **given},
    )


def open_line(organization: Organization, number: int) -> OpenLine:
    return OpenLine(id=IDS[number], organization_id=organization.pk, key_id=1, currency="CNY")


@pytest.fixture
def folder(acme: Organization, tmp_path: Path) -> Path:
    """The journal of a machine that died with two calls closed and one open."""
    journal = Journal(tmp_path / "journal")
    for number in (0, 1):
        journal.open(open_line(acme, number))
        journal.close(record(acme, number))
    journal.open(open_line(acme, 2))
    journal.close_files()
    return tmp_path / "journal"


def replay(folder: Path) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    call_command("replay", str(folder), stdout=out, stderr=err)
    return out.getvalue().strip(), err.getvalue().strip()


def books() -> tuple[dict[str, str], int]:
    with scope.site("test"):
        statuses = {str(row.id): row.status for row in UsageRecord.objects.all()}
        return statuses, sum(entry.amount_nano for entry in LedgerEntry.objects.filter(account="wallet"))


def test_closed_calls_are_charged_and_an_open_one_is_interrupted(folder: Path) -> None:
    assert replay(folder)[0] == "3 calls recorded, 0 were known, 0 refused"
    assert books() == ({IDS[0]: "ok", IDS[1]: "ok", IDS[2]: "interrupted"}, -200)
    assert not list(folder.iterdir())


def test_a_copy_without_its_locks_is_replayed_and_again_changes_nothing(folder: Path, tmp_path: Path) -> None:
    copies = [tmp_path / "first", tmp_path / "second"]
    for copy in copies:
        copy.mkdir()
        for path in folder.glob("*.journal"):
            (copy / path.name).write_bytes(path.read_bytes())
    assert replay(copies[0])[0] == "3 calls recorded, 0 were known, 0 refused"
    assert replay(copies[1])[0] == "0 calls recorded, 3 were known, 0 refused"
    assert books()[1] == -200


def test_the_journal_of_a_living_process_is_left_alone(acme: Organization, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.open(open_line(acme, 0))
    assert replay(tmp_path / "journal")[0] == "0 calls recorded, 0 were known, 0 refused"
    assert journal.open_calls == 1
    journal.close(record(acme, 0))
    journal.shipped(1)
    journal.close_files()


def test_a_refused_record_is_told_kept_and_tried_again(acme: Organization, folder: Path) -> None:
    journal = Journal(folder)
    journal.close(record(acme, 3, currency="USD"))
    journal.close_files()
    out, err = replay(folder)
    assert out == "3 calls recorded, 0 were known, 1 refused"
    assert IDS[3] in err and "does not balance" in err
    assert [path.name for path in folder.iterdir()] == ["rejected.journal"]
    assert replay(folder)[0] == "0 calls recorded, 0 were known, 1 refused"
    text = (folder / "rejected.journal").read_text()
    (folder / "rejected.journal").write_text(text.replace("USD", "CNY"))
    assert replay(folder)[0] == "1 calls recorded, 0 were known, 0 refused"
    assert not list(folder.iterdir())


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is no folder"):
        replay(tmp_path / "nothing")
