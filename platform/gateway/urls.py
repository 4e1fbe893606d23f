"""Every address that the console process answers. The relay hands over what is not a call."""

from allauth.account import views as account
from django.urls import URLPattern, URLResolver, include, path, re_path

from console import health
from console.api.without_v1 import PATHS, without_v1

handler400 = "gateway.hosts.bad_request"

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.live, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("language/", include("django.conf.urls.i18n")),
    path("sign-in/", account.login, name="account_login"),
    path("sign-out/", account.logout, name="account_logout"),
    path("sign-up/", account.signup, name="account_signup"),
    path("sign-in/inactive/", account.account_inactive, name="account_inactive"),
    path("password/", account.password_change, name="account_change_password"),
    path("password/again/", account.reauthenticate, name="account_reauthenticate"),
    path("api/v1/", include("console.api.urls")),
    path("v1/", include("console.api.managed_urls")),
    re_path(PATHS, without_v1),
    path("", include("console.urls")),
]
