"""The first page: the day's figures, or how to make a first call."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from console.gate import PageRequest, organization_page
from console.overview import charts
from console.overview.queries import ERROR_STATUSES, read_overview
from relay.models import Kind, Model

__all__ = ["overview"]

_EXAMPLE_MODEL = "kimi-k2"


def overview(request: HttpRequest) -> HttpResponse:
    """The overview for people; a short word for programs that only ask whether somebody is there."""
    if not request.user.is_authenticated and "text/html" not in request.headers.get("Accept", ""):
        return HttpResponse("Yizhan\n", content_type="text/plain; charset=utf-8")
    return _overview(request)


@organization_page()
def _overview(request: PageRequest) -> HttpResponse:
    visitor = request.visitor
    day = read_overview(visitor.sight, timezone.now())
    model = Model.objects.filter(enabled=True, kind=Kind.CHAT).order_by("name").first()
    address = settings.PUBLIC_URL.rstrip("/")
    context = {
        "day": day,
        "call_chart": charts.draw_calls(day.hours, day.start),
        "ttft_chart": charts.draw_ttft(day.hours),
        "error_statuses": ",".join(ERROR_STATUSES),
        "address": address,
        "example_model": model.name if model is not None else _EXAMPLE_MODEL,
        "addresses": [("OpenAI", f"{address}/v1")],
    }
    return render(request, "console/overview.html", context)
