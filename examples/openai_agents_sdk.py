"""An agent of the OpenAI Agents SDK inside a handler: no call is paid for twice."""

import json

import httpx2
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from backburner import App, Context, TransientError, capability


class Steps(httpx2.AsyncBaseTransport):
    """Makes each HTTP request of a model's client a step of the job."""

    def __init__(self, ctx: Context) -> None:
        self.ctx, self.calls = ctx, 0
        self.inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.calls += 1
        text = await self.ctx.step(f"model call {self.calls}", self.send, request)
        headers = {"Content-Type": "application/json"}
        return httpx2.Response(200, headers=headers, text=text, request=request)

    async def send(self, request: httpx2.Request) -> str:
        response = await self.inner.handle_async_request(request)
        text = (await response.aread()).decode()
        if response.is_error:
            raise TransientError(f"the provider answered {response.status_code}")
        body = json.loads(text)
        used = body["usage"]
        self.ctx.used(
            body["model"],
            input_tokens=used["prompt_tokens"],
            output_tokens=used["completion_tokens"],
        )
        return text


@function_tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"sunny in {city}"


@capability("plan-trip")
async def plan_trip(ctx: Context, question: str) -> str:
    async with httpx2.AsyncClient(transport=Steps(ctx)) as http:
        client = AsyncOpenAI(http_client=http, max_retries=0)
        model = OpenAIChatCompletionsModel("gpt-5-mini", client)
        agent = Agent("Planner", model=model, tools=[weather])
        agent.instructions = "You plan trips."
        config = RunConfig(tracing_disabled=True)
        result = await Runner.run(agent, question, run_config=config)
        return str(result.final_output)


app = App("openai_agents_sdk", capabilities=[plan_trip])
