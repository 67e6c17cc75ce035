"""The two environments and their settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

NAMES: Final = ("dev", "prod")


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment; `cdk.json` has the values under its name."""

    name: str
    cors_origins: tuple[str, ...] = ()
    """Origins of pages that call the API and the bucket."""
    table_name: str = ""
    """An existing table to use; if empty, the stack creates one."""
    user_pool_arn: str = ""
    """An existing Cognito user pool; if empty, the stack creates one."""
    ai: str = "openai"
    """Model providers in the format of `BACKBURNER_AI`; `mock` needs no key."""
    ai_model: str = ""
    """The model to call; if empty, the provider's default."""
    alarm_email: str = ""
    """Address that receives the alarms; if empty, only the topic receives them."""

    @property
    def is_production(self) -> bool:
        """Whether data is kept when the stack is deleted."""
        return self.name == "prod"


def environment_of(name: str, given: Mapping[str, Any] | None) -> Environment:
    """Read an environment from the context of the CDK app."""
    values = dict(given or {})
    values["cors_origins"] = tuple(values.get("cors_origins", ()))
    return Environment(name, **values)
