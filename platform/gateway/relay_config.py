"""What the environment says to a relay process, as the plain values that the relay takes."""

from gateway import database, env
from relay.runtime import RelayConfig

__all__ = ["relay_config"]


def relay_config() -> RelayConfig:
    """Raises env's error for a variable that is missing or wrong."""
    url = env.database_url()
    return RelayConfig(
        app=database.conninfo(url, role="relay_app", application="yizhan relay"),
        ingest=database.conninfo(url, role="relay_ingest", application="yizhan ingest"),
        limits_url=env.limits_redis_url(),
        journal_dir=env.var_dir() / "journal",
        peppers=env.key_peppers(),
        field_keys=env.field_keys(),
    )
