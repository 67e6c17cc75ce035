"""The names of all resources of a deployment on AWS."""

from typing import Final

PREFIX: Final = "backburner"


class NamingUtils:
    """Names by feature (`gap-analysis`) and environment (`dev`, `prod`)."""

    @staticmethod
    def queue_name(feature: str, environment: str) -> str:
        """Return the name of a feature's queue."""
        return f"{PREFIX}-{_dashed(feature)}-queue-{environment}"

    @staticmethod
    def dlq_name(feature: str, environment: str) -> str:
        """Return the name of a feature's dead-letter queue."""
        return f"{PREFIX}-{_dashed(feature)}-dlq-{environment}"

    @staticmethod
    def lambda_name(feature: str, environment: str) -> str:
        """Return the name of a function, for example of `gap-analysis-worker`."""
        return f"{PREFIX}-{_dashed(feature)}-{environment}"

    @staticmethod
    def table_name(environment: str) -> str:
        """Return the name of the table of job records."""
        return f"{PREFIX}-features-jobs-{environment}"

    @staticmethod
    def bucket_name(environment: str, account: str) -> str:
        """Return the name of the bucket of results, unique by the account's number."""
        return f"{PREFIX}-features-{environment}-{account}"

    @staticmethod
    def secret_name(environment: str) -> str:
        """Return the name of the secret with the key of the model's provider."""
        return f"{PREFIX}/features/{environment}/model-key"

    @staticmethod
    def alarm_name(rule: str, environment: str) -> str:
        """Return the name of the alarm of an alert rule."""
        return f"{PREFIX}-features-{_dashed(rule)}-alarm-{environment}"


def _dashed(name: str) -> str:
    return name.replace("_", "-")
