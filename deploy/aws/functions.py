"""The functions, each with a role with only the permissions that it needs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_logs as logs
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct
from deploy.aws.environments import Environment
from deploy.aws.storage import GROUP, Storage

from backburner_apps.features.aws import items
from backburner_apps.features.aws.bucket import REQUESTS, RESULTS, UPLOADS
from backburner_apps.features.aws.observing import NAMESPACE
from backburner_apps.features.core.naming import NamingUtils

API_SECONDS: Final = 30
WORKER_SECONDS: Final = 900
WORKER_MEMORY: Final = 1024
API_MEMORY: Final = 512
RUNTIME: Final = lambda_.Runtime.PYTHON_3_12
OFF: Final = "false"


class Archives(NamedTuple):
    """The archives of the functions: our packages and third-party packages."""

    code: Path
    layer: Path


@dataclass(frozen=True, slots=True)
class Shape:
    """The limits of a function."""

    name: str
    seconds: int = API_SECONDS
    memory: int = API_MEMORY


class Functions(Construct):
    """The four functions of an environment, all from one archive."""

    def __init__(
        self,
        scope: Construct,
        environment: Environment,
        storage: Storage,
        archives: Archives,
    ) -> None:
        super().__init__(scope, "Functions")
        self._environment, self._storage = environment, storage
        self._code = lambda_.Code.from_asset(str(archives.code))
        self._layer = lambda_.LayerVersion(
            self,
            "Packages",
            code=lambda_.Code.from_asset(str(archives.layer)),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[lambda_.Architecture.X86_64],
        )
        self.submit = self._made(Shape("submit"))
        self.status = self._made(Shape("status"))
        self.upload = self._made(Shape("upload"))
        self.worker = self._made(Shape("worker", WORKER_SECONDS, WORKER_MEMORY))
        self._grant()
        self._add_model()
        self.worker.add_event_source(
            sources.SqsEventSource(
                storage.queue,
                batch_size=1,
                max_batching_window=Duration.seconds(0),
                report_batch_item_failures=True,
            )
        )

    def _made(self, shape: Shape) -> lambda_.Function:
        name = NamingUtils.lambda_name(f"{GROUP}-{shape.name}", self._environment.name)
        log_group = logs.LogGroup(
            self,
            f"{shape.name.title()}Log",
            log_group_name=f"/aws/lambda/{name}",
            retention=logs.RetentionDays.TWO_WEEKS,
        )
        role = iam.Role(
            self,
            f"{shape.name.title()}Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        )
        log_group.grant_write(role)
        return lambda_.Function(
            self,
            shape.name.title(),
            function_name=name,
            runtime=RUNTIME,
            architecture=lambda_.Architecture.X86_64,
            handler=f"backburner_apps.features.aws.{shape.name}.handler",
            code=self._code,
            layers=[self._layer],
            timeout=Duration.seconds(shape.seconds),
            memory_size=shape.memory,
            tracing=lambda_.Tracing.ACTIVE,
            environment=self._variables(),
            role=role,
            log_group=log_group,
        )

    def _variables(self) -> dict[str, str]:
        return {
            "JOBS_TABLE_NAME": self._storage.table.table_name,
            "QUEUE_URL": self._storage.queue.queue_url,
            "RESULTS_BUCKET_NAME": self._storage.bucket.bucket_name,
            "CORS_ORIGINS": ",".join(self._environment.cors_origins),
            "POWERTOOLS_SERVICE_NAME": service_of(self._environment),
            "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
            "POWERTOOLS_LOG_LEVEL": "INFO",
            # Events and responses contain CVs.
            "POWERTOOLS_LOGGER_LOG_EVENT": OFF,
            "POWERTOOLS_TRACER_CAPTURE_RESPONSE": OFF,
            "POWERTOOLS_TRACER_CAPTURE_ERROR": OFF,
        }

    def _grant(self) -> None:
        queue = self._storage.queue.queue_arn
        self._may_use_table(self.submit, "PutItem", "GetItem", "UpdateItem")
        self._may_list(self.submit, UPLOADS)
        self._may(self.submit, "s3:PutObject", self._objects(REQUESTS))
        self._may(self.submit, "sqs:SendMessage", queue)
        self._may_use_table(self.status, "GetItem")
        index = f"{self._storage.table.table_arn}/index/{items.INDEX}"
        self._may(self.status, "dynamodb:Query", index)
        self._may(self.status, "s3:GetObject", self._objects(RESULTS))
        self._may(self.upload, "s3:PutObject", self._objects(UPLOADS))
        self._may_use_table(self.worker, "GetItem", "UpdateItem")
        self._may_list(self.worker, RESULTS, UPLOADS)
        self._may(
            self.worker,
            "s3:GetObject",
            *(self._objects(REQUESTS), self._objects(UPLOADS)),
        )
        self._may(self.worker, "s3:PutObject", self._objects(RESULTS))

    def _may_use_table(self, function: lambda_.Function, *actions: str) -> None:
        named = [f"dynamodb:{action}" for action in actions]
        resources = [self._storage.table.table_arn]
        function.add_to_role_policy(
            iam.PolicyStatement(actions=named, resources=resources)
        )

    def _may_list(self, function: lambda_.Function, *prefixes: str) -> None:
        """Allow a function to see whether objects with a prefix exist."""
        condition: Any = {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}
        function.add_to_role_policy(
            iam.PolicyStatement(
                actions=["s3:ListBucket"],
                resources=[self._storage.bucket.bucket_arn],
                conditions={"StringLike": condition},
            )
        )

    def _may(self, function: lambda_.Function, action: str, *resources: str) -> None:
        function.add_to_role_policy(
            iam.PolicyStatement(actions=[action], resources=list(resources))
        )

    def _objects(self, prefix: str) -> str:
        return self._storage.bucket.arn_for_objects(f"{prefix}*")

    def _add_model(self) -> None:
        """Set the worker's model; the other functions do not need it."""
        environment = self._environment
        self.worker.add_environment("BACKBURNER_AI", environment.ai)
        if environment.ai_model:
            self.worker.add_environment("BACKBURNER_AI_MODEL", environment.ai_model)
        if environment.ai == "mock":
            return
        name = NamingUtils.secret_name(environment.name)
        self.worker.add_environment("MODEL_SECRET_NAME", name)
        secret = secretsmanager.Secret.from_secret_name_v2(self, "ModelKey", name)
        secret.grant_read(self.worker)


def service_of(environment: Environment) -> str:
    """Return the service name of an environment in metrics and logs."""
    return f"{GROUP}-{environment.name}"
