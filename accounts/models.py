"""Tables of organizations, people and keys.

Every table of an organization's data carries `organization` itself, is under row-level security
(`row_security`) and is reached through a scope (`scope`). People (`User`) belong to no organization;
membership is a row of its own.
"""

from typing import ClassVar

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.scope import ScopedManager

__all__ = ["Key", "Limited", "Member", "Organization", "Role", "Scope", "User"]


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: object) -> "User":
        """A person who can sign in. The address is kept in lower case; without a password none works."""
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: object) -> "User":
        return self.create_user(email, password, is_operator=True, is_superuser=True, **fields)

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").lower())


class User(AbstractBaseUser, PermissionsMixin):
    """A person. `is_operator` marks those who run the site."""

    email = models.EmailField(_("e-mail"), unique=True)
    name = models.CharField(_("name"), max_length=150, blank=True)
    is_operator = models.BooleanField(default=False)
    is_active = models.BooleanField(default=True)
    date_joined = models.DateTimeField(default=timezone.now)

    objects: ClassVar[UserManager] = UserManager()

    EMAIL_FIELD = "email"
    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(email=Lower(F("email"))), name="user_email_is_lower")
        ]

    def __str__(self) -> str:
        return self.email

    @property
    def is_staff(self) -> bool:
        """Django's word for who may open its admin site: operators."""
        return self.is_operator


class Limited(models.Model):
    """The limits that an organization and a key can carry. None means no limit of its own at this level."""

    budget_nano = models.BigIntegerField(
        null=True, blank=True, help_text="for life, in nano-units of the organization's currency"
    )
    rpm = models.PositiveIntegerField(null=True, blank=True, help_text="calls in any 60 seconds")
    concurrency = models.PositiveIntegerField(null=True, blank=True, help_text="calls open at once")

    class Meta:
        abstract = True


class Organization(Limited):
    """A tenant. `name` is its slug in files and addresses; `currency` is the one billing currency of its
    wallet and limits.
    """

    name = models.SlugField(max_length=63, unique=True)
    title = models.CharField(max_length=200)
    currency = models.CharField(max_length=3, default="CNY")
    time_zone = models.CharField(max_length=63, default="Asia/Shanghai")
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)

    objects = ScopedManager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(currency__regex=r"^[A-Z]{3}$"), name="organization_currency_is_iso_4217"
            ),
            models.CheckConstraint(
                condition=Q(budget_nano=None) | Q(budget_nano__gte=0), name="organization_budget_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    OWNER = "owner", _("Owner")
    ADMIN = "admin", _("Admin")
    FINANCE = "finance", _("Finance")
    EMPLOYEE = "employee", _("Employee")


class MemberManager(ScopedManager):
    """Members who have not been switched off."""

    def get_queryset(self) -> "models.QuerySet[Member]":
        return super().get_queryset().filter(enabled=True)


class Member(models.Model):
    """A person's place in an organization. Never deleted, for calls and keys name it: it is switched off."""

    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="members")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)

    objects = MemberManager()
    with_disabled = ScopedManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "user"], name="member_once_per_organization"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="member_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.organization_id}"


class Scope(models.TextChoices):
    CALL = "call", _("Call models")
    MANAGE = "manage", _("Manage the organization")
    OPERATE = "operate", _("Operate the site")


class Key(Limited):
    """What a program shows to be let in. Kept as a fingerprint; the clear text is shown once."""

    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="keys")
    member = models.ForeignKey(Member, null=True, blank=True, on_delete=models.PROTECT, related_name="keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=20)
    fingerprint = models.BinaryField(unique=True)
    allowed_models = ArrayField(
        models.CharField(max_length=200),
        null=True,
        blank=True,
        help_text="names on offer that it may call; None is all",
    )
    scopes = ArrayField(models.CharField(max_length=16), default=list)
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_reason = models.CharField(max_length=100, default="", blank=True)

    objects = ScopedManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"], condition=Q(revoked_at=None), name="key_name_once_while_live"
            ),
            models.CheckConstraint(
                condition=Q(budget_nano=None) | Q(budget_nano__gte=0), name="key_budget_not_negative"
            ),
            models.CheckConstraint(
                condition=Q(scopes__contained_by=Scope.values), name="key_scopes_are_known"
            ),
        ]
        indexes = [models.Index(fields=["organization", "-created_at", "-id"], name="key_newest_first")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
