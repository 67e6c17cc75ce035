"""An alarm for each alert rule; the runbook describes how to handle it."""

from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct
from deploy.aws.environments import Environment
from deploy.aws.functions import Functions, service_of
from deploy.aws.storage import Storage

from backburner_apps.features.aws.observing import NAMESPACE, WORKER_ERRORS
from backburner_apps.features.core.naming import NamingUtils

RUNBOOK: Final = "deploy/aws/RUNBOOK.md"
PERIOD: Final = Duration.minutes(5)
MAX_ERROR_PERCENT: Final = 5
MAX_SECONDS: Final = 600
ERROR_RATE: Final = (
    "IF(FILL(invocations, 0) > 0, "
    "100 * (FILL(errors, 0) + FILL(reported, 0)) / invocations, 0)"
)


class Alarms(Construct):
    """The alarms of an environment, and the topic that receives them."""

    def __init__(
        self,
        scope: Construct,
        environment: Environment,
        storage: Storage,
        functions: Functions,
    ) -> None:
        super().__init__(scope, "Alarms")
        self._environment = environment
        self.topic = sns.Topic(
            self,
            "Topic",
            topic_name=NamingUtils.alarm_name("topic", environment.name),
            enforce_ssl=True,
        )
        if environment.alarm_email:
            email = subscriptions.EmailSubscription(environment.alarm_email)
            self.topic.add_subscription(email)
        self._add("dead-letters", dead_letters(storage), 0)
        self._add("worker-errors", self._error_rate(functions), MAX_ERROR_PERCENT)
        self._add("slow-processing", self._processing_p99(), MAX_SECONDS)

    def _add(self, rule: str, metric: cloudwatch.IMetric, threshold: float) -> None:
        alarm = cloudwatch.Alarm(
            self,
            rule.title().replace("-", ""),
            alarm_name=NamingUtils.alarm_name(rule, self._environment.name),
            alarm_description=f"{rule}: see {RUNBOOK}",
            metric=metric,
            threshold=threshold,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))

    def _error_rate(self, functions: Functions) -> cloudwatch.MathExpression:
        """Return the metric of failed deliveries, both reported and crashed."""
        total = cloudwatch.Stats.SUM
        worker = functions.worker
        return cloudwatch.MathExpression(
            expression=ERROR_RATE,
            label="Failed deliveries in percent",
            using_metrics={
                "errors": worker.metric_errors(period=PERIOD, statistic=total),
                "invocations": worker.metric_invocations(
                    period=PERIOD, statistic=total
                ),
                "reported": self._own(WORKER_ERRORS, total),
            },
            period=PERIOD,
        )

    def _processing_p99(self) -> cloudwatch.Metric:
        return self._own("ProcessingDuration", "p99")

    def _own(self, name: str, statistic: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={"service": service_of(self._environment)},
            statistic=statistic,
            period=PERIOD,
        )


def dead_letters(storage: Storage) -> cloudwatch.Metric:
    """Return the metric of messages in the dead-letter queue."""
    return storage.dead_letters.metric_approximate_number_of_messages_visible(
        period=Duration.minutes(1), statistic=cloudwatch.Stats.MAXIMUM
    )
