"""How figures, times and amounts look. The only place where the console formats; nothing is calculated here.

Figures keep the full value in `title`; times are shown in the zone in force (the organization's) with UTC in
`datetime`; amounts always carry their currency.
"""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django import template
from django.template import Context
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from console.amounts import NANO_DIGITS, decimal_string

register = template.Library()

# Thin no-break space: keeps a figure and its unit together.
_THIN = "\u202f"
_DASH = "\u2013"
_MINUS = "\u2212"
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
# From here on seconds read better than milliseconds.
_SECONDS_FROM_MS = 1000


@register.simple_tag(takes_context=True)
def here(context: Context, name: str, *args: object, **query: object) -> str:
    """The address of a page of the organization that is being looked at."""
    visitor = getattr(context.get("request"), "visitor", None)
    return visitor.url(name, *args, **query) if visitor is not None else reverse(name, args=args)


@register.filter
def count(value: int | None) -> str:
    """A whole number, its thousands set apart by a comma."""
    return _DASH if value is None else f"{value:,}"


@register.filter
def compact(value: float | None) -> SafeString | str:
    """A large number in short (12.3k, 4.56M), always three digits so that columns align; the exact one in `title`."""
    if value is None:
        return _DASH
    size = abs(value)
    if size < 10_000:
        return f"{value:,}"
    # What three digits would round up to the next unit is shown in that one: 999,999 is 1.00M.
    limit, unit = next((limit, unit) for limit, unit in _UNITS if size >= limit * 0.9995)
    short = value / limit
    digits = 2 if abs(short) < 9.995 else 1 if abs(short) < 99.95 else 0
    return format_html('<span title="{}">{}</span>', f"{value:,}", f"{short:,.{digits}f}{unit}")


@register.filter
def duration(ms: float | None) -> SafeString | str:
    """Milliseconds as a person reads them (0.42 ms, 812 ms, 1.84 s, 2 m 05 s), the exact value in `title`."""
    if ms is None:
        return _DASH
    return format_html('<span title="{} ms">{}</span>', f"{ms:,.3f}", plain_duration(ms))


@register.filter
def plain_duration(ms: float | None) -> str:
    """As `duration`, without markup."""
    if ms is None:
        return _DASH
    if ms == 0:
        return f"0{_THIN}ms"
    if ms < 10:
        return f"{ms:.2f}{_THIN}ms"
    if ms < _SECONDS_FROM_MS:
        return f"{ms:.0f}{_THIN}ms"
    if ms < 100 * _SECONDS_FROM_MS:
        return f"{ms / 1000:.2f}{_THIN}s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    return f"{minutes}{_THIN}m {seconds:02d}{_THIN}s"


@register.filter
def scale_mark(ms: float) -> str:
    """A round duration on a scale, without idle zeros."""
    return f"{ms:g}{_THIN}ms" if ms < _SECONDS_FROM_MS else f"{ms / 1000:g}{_THIN}s"


@register.filter
def percent(share: float | None) -> str:
    """A share of 1 as percent, finer where it is small."""
    if share is None:
        return _DASH
    value = 100 * share
    if 0 < value < 0.01:
        return f"<0.01{_THIN}%"
    digits = 0 if value >= 99.95 or value == 0 else 1 if value >= 1 else 2
    return f"{value:.{digits}f}{_THIN}%"


@register.filter
def money(nano: int | None, currency: str) -> SafeString | str:
    """An amount with its currency, rounded to be read; the exact one in `title`."""
    if nano is None:
        return _DASH
    exact = decimal_string(nano)
    return format_html(
        '<span class="money" title="{0} {1}">{2}<span class="unit">{3}{1}</span></span>',
        exact,
        currency,
        _shown_amount(nano),
        "\u00a0",
    )


@register.filter
def whole_money(nano: int | None, currency: str) -> SafeString | str:
    """An amount with its currency, to the last digit."""
    return _DASH if nano is None else exact_money(Decimal(decimal_string(nano)), currency)


@register.filter
def exact_money(value: Decimal | None, currency: str) -> SafeString | str:
    """An exact decimal amount with its currency, all digits."""
    if value is None:
        return _DASH
    return format_html(
        '<span class="money">{}<span class="unit">{}{}</span></span>', f"{value:,f}", "\u00a0", currency
    )


@register.filter
def plain_decimal(value: Decimal) -> str:
    """An exact decimal number, all its digits, thousands set apart."""
    return f"{value:,f}"


def _shown_amount(nano: int) -> str:
    """Four digits after the point, so that columns align; what is smaller shows its first two digits; nothing is 0."""
    if nano == 0:
        return "0"
    digits = 4
    while digits < NANO_DIGITS and abs(nano) < 10 ** (NANO_DIGITS - digits):
        digits += 2
    rounded = Decimal(nano).scaleb(-NANO_DIGITS).quantize(Decimal(1).scaleb(-min(digits, NANO_DIGITS)))
    return f"{rounded:,f}".replace("-", _MINUS)


@register.filter
def moment(value: datetime | None) -> SafeString | str:
    """A time of a list: month, day and time to the second, with the year if it is not the present one."""
    if value is None:
        return _DASH
    local = timezone.localtime(value)
    form = "%m-%d %H:%M:%S" if local.year == timezone.localtime().year else "%Y-%m-%d %H:%M"
    return _time(value, local.strftime(form))


@register.filter
def full_moment(value: datetime | None) -> SafeString | str:
    """A time with its date and zone, to the millisecond."""
    if value is None:
        return _DASH
    local = timezone.localtime(value)
    return _time(value, f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d} {_offset(local)}")


def _offset(local: datetime) -> str:
    """The distance to UTC; short names of zones mean different ones in different places."""
    text = f"{local:%z}"
    return f"UTC{text[:3]}:{text[3:5]}"


@register.filter
def day(value: datetime | None) -> SafeString | str:
    """A date with hours and minutes."""
    return _DASH if value is None else _time(value, f"{timezone.localtime(value):%Y-%m-%d %H:%M}")


@register.filter
def plain_moment(value: datetime) -> str:
    """A date with hours and minutes, without markup."""
    return f"{timezone.localtime(value):%Y-%m-%d %H:%M}"


@register.filter
def plain_hour(value: datetime) -> str:
    """Hours and minutes, without markup."""
    return f"{timezone.localtime(value):%H:%M}"


def _time(value: datetime, text: str) -> SafeString:
    utc = value.astimezone(UTC)
    local = timezone.localtime(value)
    title = f"{local:%Y-%m-%d %H:%M:%S} {_offset(local)}"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', utc.isoformat().replace("+00:00", "Z"), title, text
    )


@register.filter
def field_input(value: datetime | None) -> str:
    """A time as the value of an `<input type="datetime-local">`."""
    return "" if value is None else f"{timezone.localtime(value):%Y-%m-%dT%H:%M}"


@register.filter
def share_of(value: float | None, whole: float) -> str:
    """A width in percent for an SVG attribute; a value above nothing is never thinner than can be seen."""
    share = 100 * (value or 0) / whole if whole else 0
    return f"{min(max(share, 0.5 if value else 0), 100):.2f}%"


@register.filter
def lookup(table: dict[Any, Any], name: Any) -> Any:
    """The value of a name in a table, or nothing."""
    return table.get(name, "")


@register.filter
def described(field: Any) -> SafeString:
    """A form field's control, told where its help and its error stand."""
    ids = []
    if field.help_text:
        ids.append(f"{field.auto_id}-help")
    if field.errors:
        ids.append(f"{field.auto_id}-error")
    # The label says what the field is; a placeholder would say it twice and vanish when it is needed.
    attrs: dict[str, Any] = {"placeholder": False}
    if ids:
        attrs["aria-describedby"] = " ".join(ids)
    if field.errors:
        attrs["aria-invalid"] = "true"
    return field.as_widget(attrs=attrs)


@register.filter
def status_tone(status: str) -> str:
    """The tone of a call's status: good, bad, warn or calm."""
    return {"ok": "good", "upstream_error": "bad", "interrupted": "bad", "client_gone": "calm"}.get(
        status, "warn"
    )
