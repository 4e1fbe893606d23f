"""Addresses of the key-managed endpoints; a slash at the end is tolerated, as on every path of the relay."""

from django.urls import re_path

from console.api import managed, managed_keys

__all__ = ["urlpatterns"]

urlpatterns = [
    re_path(r"^usage/?$", managed.Usage.as_view(), name="managed_usage"),
    re_path(r"^balance/?$", managed.Balance.as_view(), name="managed_balance"),
    re_path(r"^apikeys/?$", managed_keys.ApiKeyList.as_view(), name="managed_keys"),
    re_path(r"^apikeys/(?P<key_id>[0-9]{1,18})/?$", managed_keys.ApiKeyPage.as_view(), name="managed_key"),
    re_path(r"^apikey_groups/?$", managed_keys.ApiKeyGroups.as_view(), name="managed_groups"),
]
