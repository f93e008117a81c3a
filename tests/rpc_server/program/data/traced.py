"""Spans as instrumentations of several conventions make them; SETUP names how OpenTelemetry is set up."""

import json
import os
import threading

from opentelemetry import context, trace

SETUP = os.environ.get("SETUP", "none")
EXPORTED = []
seed_candidate = {"planner": "Plan the trip in days.", "solver": "Solve it.", "checker": "Plan", "short": "Plan the"}

if SETUP != "none":
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    class Keeps(SpanExporter):
        def export(self, spans):
            EXPORTED.extend(span.name for span in spans)
            return SpanExportResult.SUCCESS

    class Throws(SpanExporter):
        def export(self, spans):
            raise RuntimeError("no exporter")

    def set_up():
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(Keeps()))
        if SETUP == "throws":
            provider.add_span_processor(SimpleSpanProcessor(Throws()))
        trace.set_tracer_provider(provider)

    if SETUP != "late":
        set_up()

tracer = trace.get_tracer("traced")
MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "Rome?"}]}]
CALL = {"type": "tool_call", "id": "1", "name": "search", "arguments": {"city": "Rome"}}


def system(text):
    return json.dumps([{"type": "text", "content": text}])


def answer(text):
    return json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])


def chat(name="chat m", **attributes):
    """The attributes of GenAI's current convention."""
    given = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.input.messages": json.dumps(MESSAGES),
        "gen_ai.output.messages": answer("Two days."),
        **{name.replace("__", "."): value for name, value in attributes.items()},
    }
    return tracer.start_as_current_span(name, attributes=given)


def run(example, candidate, trace):
    wanted = example["do"]
    if wanted == "late":
        if not EXPORTED:
            set_up()
        exported(trace)
        return list(EXPORTED)
    return globals()[wanted](trace) or wanted


def genai(_):
    with chat(gen_ai__system_instructions=system("You. Plan the trip in days. Now.")):
        pass
    with chat(gen_ai__output__messages=json.dumps([{"role": "assistant", "parts": [CALL]}])):
        pass
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.agent.name": "solver"}
    tool |= {"gen_ai.tool.call.arguments": '{"city": "Rome"}', "gen_ai.tool.call.result": "sunny"}
    with tracer.start_as_current_span("execute_tool search", attributes=tool):
        pass


def recording(_):
    with chat() as span:
        return str(span.is_recording())


def threads(_):
    def lone():
        with chat("lone"):
            pass

    def within(around):
        context.attach(around)
        lone()

    with chat("starts threads"):
        for target in (lone, lambda around=context.get_current(): within(around)):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()


def exported(_):
    with chat():
        pass
    return list(EXPORTED)


def score(example, output):
    with tracer.start_as_current_span("judge", attributes={"gen_ai.operation.name": "chat"}):
        return {"score": 1, "component_feedback": {"planner": "well done"} if example["do"] == "genai" else {}}
