import stat

from gateway.embedded import Temporaries


def test_a_folder_is_found_again_after_a_kill(place):
    first = Temporaries(place).folder("pg-socket", None, mode=0o700)
    assert Temporaries(place).folder("pg-socket", None, mode=0o700) == first
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    Temporaries(place).remove()
    assert not first.exists()
    assert list(place.iterdir()) == []


def test_two_names_have_two_folders(place):
    temporaries = Temporaries(place)
    assert temporaries.folder("a", None, mode=0o700) != temporaries.folder("b", None, mode=0o700)
    temporaries.remove()


def test_a_folder_that_others_may_enter_is_not_used_again(place):
    temporaries = Temporaries(place)
    first = temporaries.folder("a", None, mode=0o700)
    first.chmod(0o777)
    second = temporaries.folder("a", None, mode=0o700)
    assert second != first
    temporaries.remove()
    first.rmdir()


def test_a_link_in_its_place_is_not_followed(place):
    temporaries = Temporaries(place)
    first = temporaries.folder("a", None, mode=0o700)
    first.rmdir()
    target = place / "target"
    target.mkdir(mode=0o700)
    first.symlink_to(target)
    assert temporaries.folder("a", None, mode=0o700) != first
    temporaries.remove()
    assert target.exists()
    first.unlink()


def test_a_folder_that_was_cleaned_away_is_made_anew(place):
    temporaries = Temporaries(place)
    first = temporaries.folder("a", None, mode=0o700)
    first.rmdir()
    assert temporaries.folder("a", None, mode=0o700).is_dir()
    temporaries.remove()


def test_a_record_that_names_something_else_removes_nothing(place):
    (place / "precious").mkdir()
    (place / "a.temporary").write_text(str(place / "precious"))
    Temporaries(place).remove()
    assert (place / "precious").is_dir()
