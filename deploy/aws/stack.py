"""The stack of one environment."""

from aws_cdk import CfnOutput, Stack, Tags
from constructs import Construct
from deploy.aws.alarms import Alarms
from deploy.aws.api import Api
from deploy.aws.environments import Environment
from deploy.aws.functions import Archives, Functions
from deploy.aws.storage import Storage


class FeaturesStack(Stack):
    """Everything that the features need in one environment."""

    def __init__(
        self, scope: Construct, environment: Environment, archives: Archives
    ) -> None:
        super().__init__(scope, f"backburner-features-{environment.name}")
        # CDK itself writes the dependencies that this check finds redundant.
        self.template_options.metadata = {
            "cfn-lint": {"config": {"ignore_checks": ["W3005"]}}
        }
        Tags.of(self).add("environment", environment.name)
        storage = Storage(self, environment)
        functions = Functions(self, environment, storage, archives)
        api = Api(self, environment, functions)
        Alarms(self, environment, storage, functions)
        CfnOutput(self, "ApiUrl", value=f"{api.rest.url}api")
        CfnOutput(self, "QueueUrl", value=storage.queue.queue_url)
        CfnOutput(self, "DeadLettersUrl", value=storage.dead_letters.queue_url)
