"""The API: every route needs a user of the Cognito user pool."""

from typing import Final

from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_lambda as lambda_
from constructs import Construct
from deploy.aws.environments import Environment
from deploy.aws.functions import Functions
from deploy.aws.storage import GROUP

from backburner_apps.features.core.naming import NamingUtils

ALLOWED_HEADERS: Final = ["Authorization", "Content-Type", "Idempotency-Key"]
REQUESTS_PER_SECOND: Final = 50
BURST: Final = 100


class Api(Construct):
    """API Gateway's REST API with the routes under `/api`."""

    def __init__(
        self, scope: Construct, environment: Environment, functions: Functions
    ) -> None:
        super().__init__(scope, "Api")
        self.rest = apigateway.RestApi(
            self,
            "Rest",
            rest_api_name=NamingUtils.lambda_name(f"{GROUP}-api", environment.name),
            endpoint_types=[apigateway.EndpointType.REGIONAL],
            cloud_watch_role=False,
            deploy_options=apigateway.StageOptions(
                stage_name=environment.name,
                tracing_enabled=True,
                throttling_rate_limit=REQUESTS_PER_SECOND,
                throttling_burst_limit=BURST,
            ),
            default_cors_preflight_options=_preflight(environment),
        )
        self._authorizer = apigateway.CognitoUserPoolsAuthorizer(
            self, "Users", cognito_user_pools=[_user_pool(self, environment)]
        )
        self._add_routes(functions)
        if environment.cors_origins:
            self._let_pages_read_errors()

    def _add_routes(self, functions: Functions) -> None:
        base = self.rest.root.add_resource("api")
        feature = base.add_resource("{feature}")
        job = "{job_id}"
        self._route(feature.add_resource("submit"), "POST", functions.submit)
        cancel = feature.add_resource("cancel").add_resource(job)
        self._route(cancel, "POST", functions.submit)
        status = feature.add_resource("status").add_resource(job)
        self._route(status, "GET", functions.status)
        self._route(feature.add_resource("jobs"), "GET", functions.status)
        self._route(base.add_resource("jobs"), "GET", functions.status)
        self._route(feature.add_resource("uploads"), "POST", functions.upload)

    def _route(
        self, resource: apigateway.Resource, method: str, function: lambda_.Function
    ) -> None:
        resource.add_method(
            method,
            apigateway.LambdaIntegration(function),
            authorizer=self._authorizer,
            authorization_type=apigateway.AuthorizationType.COGNITO,
        )

    def _let_pages_read_errors(self) -> None:
        """Add the CORS header to API Gateway's own answers, for example a 401."""
        for kind in ("DEFAULT_4_XX", "DEFAULT_5_XX"):
            self.rest.add_gateway_response(
                kind.title().replace("_", ""),
                type=getattr(apigateway.ResponseType, kind),
                response_headers={"Access-Control-Allow-Origin": "'*'"},
            )


def _preflight(environment: Environment) -> apigateway.CorsOptions | None:
    if not environment.cors_origins:
        return None
    return apigateway.CorsOptions(
        allow_origins=list(environment.cors_origins),
        allow_methods=["GET", "POST", "OPTIONS"],
        allow_headers=ALLOWED_HEADERS,
    )


def _user_pool(scope: Construct, environment: Environment) -> cognito.IUserPool:
    if environment.user_pool_arn:
        return cognito.UserPool.from_user_pool_arn(
            scope, "Pool", environment.user_pool_arn
        )
    pool = cognito.UserPool(
        scope,
        "Pool",
        user_pool_name=NamingUtils.lambda_name(f"{GROUP}-users", environment.name),
        self_sign_up_enabled=False,
        sign_in_aliases=cognito.SignInAliases(email=True),
    )
    pool.add_client("Pages", auth_flows=cognito.AuthFlow(user_srp=True))
    return pool
