"""Addresses of the console's rooms."""

from django.urls import path

from console import appearance, organizations
from console.calls import views as calls
from console.keys import views as keys
from console.money import top_up
from console.money import views as money
from console.overview import views as overview

__all__ = ["app_name", "urlpatterns"]

app_name = "console"
urlpatterns = [
    path("", overview.overview, name="overview"),
    path("calls/", calls.call_list, name="call_list"),
    path("calls/<uuid:call_id>/", calls.call_page, name="call_page"),
    path("keys/", keys.key_list, name="key_list"),
    path("keys/new/", keys.key_new, name="key_new"),
    path("keys/<int:key_id>/", keys.key_change, name="key_change"),
    path("keys/<int:key_id>/revoke/", keys.key_revoke, name="key_revoke"),
    path("money/", money.money, name="money"),
    path("money/top-up/", top_up.top_up, name="top_up"),
    path("organizations/", organizations.organization_list, name="organizations"),
    path("theme/", appearance.choose_theme, name="theme"),
]
