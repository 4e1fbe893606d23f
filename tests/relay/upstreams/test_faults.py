from relay.upstreams import faults
from relay.upstreams.faults import DETAIL_CHARS, FaultKind, UpstreamFault


def test_a_fault_says_its_kind_and_detail():
    fault = UpstreamFault(FaultKind.CUT, "before the end")
    assert (fault.kind, fault.detail, str(fault)) == (FaultKind.CUT, "before the end", "cut: before the end")
    assert str(UpstreamFault(FaultKind.CUT)) == "cut"


def test_a_detail_is_one_bounded_line():
    detail = UpstreamFault(FaultKind.TLS_FAILED, "a\r\nx: y\x00\x1b[31m" + "z" * 10_000).detail
    assert detail.startswith("a x: y [31mzz")
    assert detail.isprintable()
    assert len(detail) == DETAIL_CHARS


def test_every_kind_stands_in_the_tree():
    assert all(f"─ {kind} " in (faults.__doc__ or "") for kind in FaultKind)
