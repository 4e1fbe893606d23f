"""Addresses of the key-managed endpoints; a slash at the end is tolerated, as on every path of the relay."""

from django.urls import path

from console.api import managed, managed_keys

__all__ = ["urlpatterns"]

_VIEWS = {
    "usage": managed.Usage,
    "balance": managed.Balance,
    "apikeys": managed_keys.ApiKeyList,
    "apikeys/<int:key_id>": managed_keys.ApiKeyPage,
    "apikey_groups": managed_keys.ApiKeyGroups,
}
urlpatterns = [path(route + end, view.as_view()) for route, view in _VIEWS.items() for end in ("", "/")]
