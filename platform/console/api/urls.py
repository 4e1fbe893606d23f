"""Addresses of the control API."""

from django.urls import path, re_path
from drf_spectacular.views import SpectacularAPIView

from console.api import calls, keys, nothing, top_ups

__all__ = ["urlpatterns"]

urlpatterns = [
    path("calls/", calls.CallList.as_view(), name="api_calls"),
    path("calls/<uuid:call_id>/", calls.CallPage.as_view(), name="api_call"),
    path("keys/", keys.KeyList.as_view(), name="api_keys"),
    path("keys/<int:key_id>/", keys.KeyPage.as_view(), name="api_key"),
    path("organizations/<str:name>/top_ups/", top_ups.TopUps.as_view(), name="api_top_ups"),
    path(
        "schema/",
        SpectacularAPIView.as_view(permission_classes=[], authentication_classes=[]),
        name="api_schema",
    ),
    # With its slash only: an address that merely lacks one is led on to the right one.
    re_path(r"^.+/$", nothing.Nothing.as_view()),
]
