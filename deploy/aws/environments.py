"""The two environments, and what may differ between them."""

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
    """An existing table to use; empty: one is made."""
    user_pool_arn: str = ""
    """An existing Cognito user pool; empty: one is made."""
    ai: str = "openai"
    """Providers of models, as `BACKBURNER_AI` names them; `mock` needs no key."""
    ai_model: str = ""
    """The model to ask; empty: the provider's own."""
    alarm_email: str = ""
    """Who is sent the alarms; empty: only the topic gets them."""

    @property
    def is_production(self) -> bool:
        """Whether data outlives the stack."""
        return self.name == "prod"


def environment_of(name: str, given: Mapping[str, Any] | None) -> Environment:
    """Read an environment from the context of the CDK app."""
    values = dict(given or {})
    values["cors_origins"] = tuple(values.get("cors_origins", ()))
    return Environment(name, **values)
