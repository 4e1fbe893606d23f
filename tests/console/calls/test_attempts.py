from console.calls.attempts import attempt_rows, shown_attempts

# As the relay writes them into the record (relay.call.Attempt).
FAILED = {
    "upstream": "secret-account",
    "upstream_model": "kimi-k2-0905",
    "result": "upstream_timeout",
    "ms": 812.4,
}
ANSWERED = {
    "upstream": "other-account",
    "upstream_model": "kimi-k2-0905",
    "result": "ok",
    "ms": 700.0,
    "http_status": 200,
}


def test_an_operator_sees_all_of_an_attempt():
    assert shown_attempts([FAILED], operator=True) == [FAILED]


def test_an_organization_sees_no_account_and_no_field_that_nobody_opened():
    entry = {**ANSWERED, "excerpt": "account other-account is out of credit"}

    assert shown_attempts([entry], operator=False) == [
        {"upstream_model": "kimi-k2-0905", "result": "ok", "http_status": 200, "ms": 700.0}
    ]


def test_rows_hold_what_the_relay_wrote():
    first, second = attempt_rows([FAILED, {**ANSWERED, "hedge": True}], operator=True)

    assert (first.upstream, first.result, first.http_status, first.ms) == (
        "secret-account",
        "upstream_timeout",
        None,
        812.4,
    )
    assert (second.result, second.details) == ("ok", "hedge: True")


def test_an_attempt_without_fields_is_an_empty_row():
    (row,) = attempt_rows([{}], operator=False)

    assert (row.upstream, row.upstream_model, row.result, row.http_status, row.ms) == ("", "", "", None, None)
