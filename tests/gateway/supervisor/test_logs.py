from gateway.supervisor.logs import cut_log, last_lines, log_path, rotate_log


def test_a_full_file_is_set_aside_before_a_start(place):
    log = log_path(place, "relay-1")
    log.write_text("x" * 100)
    rotate_log(log, max_bytes=99)
    assert not log.exists()
    assert (place / "relay-1.log.1").read_text() == "x" * 100


def test_a_file_within_bounds_is_kept(place):
    log = log_path(place, "relay-1")
    log.write_text("x" * 100)
    rotate_log(log, max_bytes=100)
    assert not cut_log(log, max_bytes=100)
    assert log.read_text() == "x" * 100


def test_a_file_is_cut_under_its_writer(place):
    log = log_path(place, "relay-1")
    with log.open("a") as writer:
        writer.write("old " * 50)
        writer.flush()
        assert cut_log(log, max_bytes=99)
        writer.write("new")
    assert log.read_text() == "new"
    assert (place / "relay-1.log.1").read_text() == "old " * 50


def test_only_one_older_file_is_kept(place):
    log = log_path(place, "relay-1")
    for text in ("first", "second"):
        log.write_text(text)
        rotate_log(log, max_bytes=1)
    assert sorted(path.name for path in place.iterdir()) == ["relay-1.log.1"]
    assert (place / "relay-1.log.1").read_text() == "second"


def test_last_lines_begin_where_this_start_began(place):
    log = place / "log"
    log.write_text("of yesterday\none\n\ntwo  \nthree\n")
    assert last_lines(log, since_byte=13) == ["one", "two", "three"]
    assert last_lines(log, since_byte=13, count=1) == ["three"]
    assert last_lines(log, since_byte=1000)[0] == "of yesterday"
    assert last_lines(place / "none") == []
