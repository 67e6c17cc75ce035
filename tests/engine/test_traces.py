"""In a program with OpenTelemetry, jobs are part of the trace that submits them."""

from opentelemetry import trace

from backburner import Context, Flow, capability

ACTIVE = trace.NonRecordingSpan(
    trace.SpanContext(0xABC, 0x123, is_remote=False, trace_flags=trace.TraceFlags(1))
)
EXPECTED = f"00-{0xABC:032x}-{0x123:016x}-01"
GIVEN = f"00-{0xDEF:032x}-{0x456:016x}-00"


@capability("traced")
async def traced(ctx: Context, _value: int) -> str | None:
    return ctx.job.traceparent


async def test_a_job_takes_the_active_span(working):
    backburner = await working(traced)
    with trace.use_span(ACTIVE):
        one = await backburner.submit(traced, 1)
        [many] = await backburner.submit_many(traced, [1])
        within = await backburner.transact(lambda tx: tx.submit(traced, 1))
        here = await backburner.run(traced, 1)
        flow = Flow()
        flow.add(traced, 1, name="step")
        ticket = await backburner.submit_flow(flow)
        given = await backburner.submit(traced, 1, traceparent=GIVEN)
    without = await backburner.submit(traced, 1)

    [row] = await backburner.engine.store.find([within.id])
    assert [EXPECTED] * 3 == [await one.result(), await many.result(), here]
    assert EXPECTED == row.traceparent
    assert {"step": EXPECTED} == await ticket.results()
    assert GIVEN == await given.result()
    assert await without.result() is None
