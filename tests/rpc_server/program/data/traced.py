"""Spans as instrumentations of several conventions make them; SETUP names how OpenTelemetry is set up."""

import asyncio
import json
import os
import random
import threading

from opentelemetry import context, trace

SETUP = os.environ.get("SETUP", "none")
EXPORTED = []
seed_candidate = {"planner": "Plan the trip in days.", "solver": "Solve it.", "checker": "Plan", "short": "Plan the"}

if SETUP != "none":
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    class Keeps(SpanExporter):
        def export(self, spans):
            EXPORTED.extend(span.name for span in spans)
            return SpanExportResult.SUCCESS

    class Throws(SpanExporter):
        def export(self, spans):
            raise RuntimeError("no exporter")

    class Raises(SpanProcessor):
        def on_start(self, span, parent_context=None):
            raise RuntimeError("no start")

        def on_end(self, span):
            raise RuntimeError("no end")

    def set_up():
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(Keeps()))
        if SETUP == "throws":
            provider.add_span_processor(SimpleSpanProcessor(Throws()))
            provider.add_span_processor(Raises())
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


def events(_):
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    with tracer.start_as_current_span("chat m", attributes=attributes) as span:
        span.add_event("gen_ai.system.message", {"content": "Plan the trip in days."})
        span.add_event("gen_ai.user.message", {"content": "Rome?"})
        span.add_event("gen_ai.choice", {"message": '{"role": "assistant", "content": "Two days."}', "index": 0})


def openllmetry(_):
    attributes = {"gen_ai.system": "openai", "gen_ai.request.model": "m"}
    attributes |= {"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 3}
    attributes |= {"gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Plan the trip in days."}
    for number in range(1, 12):
        attributes |= {f"gen_ai.prompt.{number}.role": "user", f"gen_ai.prompt.{number}.content": f"city {number}"}
    attributes |= {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "Two days."}
    with tracer.start_as_current_span("openai.chat", attributes=attributes):
        pass


def openinference(_):
    with tracer.start_as_current_span("Chain", attributes={"openinference.span.kind": "CHAIN", "input.value": "Rome?"}):
        attributes = {"openinference.span.kind": "LLM", "llm.model_name": "m", "output.value": "left aside"}
        attributes |= {"llm.token_count.prompt": 7, "llm.token_count.completion": 3}
        message = "llm.input_messages.0.message."
        attributes |= {message + "role": "system", message + "content": "Plan the trip in days."}
        message = "llm.output_messages.0.message."
        function = message + "tool_calls.0.tool_call.function."
        attributes |= {message + "role": "assistant", function + "name": "search", function + "arguments": '{"a": 1}'}
        with tracer.start_as_current_span("ChatCompletion", attributes=attributes):
            pass
        attributes = {"openinference.span.kind": "TOOL", "tool.name": "search", "input.value": "5"}
        attributes |= {"output.value": '{"found": 1}', "output.mime_type": "application/json"}
        with tracer.start_as_current_span("Tool", attributes=attributes):
            pass


def components(_):
    both = system("Plan the trip in days. Solve it.")
    with chat(evolverpc__component="checker", gen_ai__system_instructions=both):
        pass
    with chat("solver", gen_ai__agent__name="planner"):
        pass
    with chat(gen_ai__agent__name="solver", gen_ai__system_instructions=both):
        pass
    with chat(gen_ai__system_instructions=both):  # the longest
        pass
    with chat(gen_ai__system_instructions=system("Plan it.")):  # holds only a short one
        pass
    with chat(evolverpc__component="planer", gen_ai__usage__output_tokens="unknown"):
        pass


def nested(trace):
    with trace.step("planner", question="Rome?") as step:
        with tracer.start_as_current_span("POST"):  # no step of its own
            with chat("agent", gen_ai__operation__name="invoke_agent"), tracer.start_as_current_span("task"):
                with trace.tool("lookup", city="Rome"), chat("inner"):
                    pass
            with chat(gen_ai__system_instructions=system("Plan the trip in days.")), chat("of the model"):
                pass
        step.outputs = "own"
    with trace.step("solver"):  # takes what it has not from those that stand for the same
        for text in ("first", "last"):
            with chat(gen_ai__agent__name="solver", gen_ai__output__messages=answer(text)):
                pass


def failed(_):
    try:
        with chat("raises"):
            raise ValueError("no luck")
    except ValueError:
        pass
    with chat("states") as span:
        span.set_status(trace.StatusCode.ERROR, "overloaded")


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


def unfinished(_):
    tracer.start_span("left", attributes={"gen_ai.operation.name": "chat"})
    tracer.start_span("no step", attributes={"http.method": "GET"})


def odd(_):
    broken = {"gen_ai.input.messages": "[{", "gen_ai.output.messages": "[1, {}, null]"}
    with tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat", **broken}):
        pass
    deep = {"gen_ai.input.messages": "[" * 100_000, "gen_ai.prompt.0": "x", "gen_ai.prompt.0.role": "user"}
    deep |= {"gen_ai.completion.²": "x", "gen_ai.usage.input_tokens": True}
    with tracer.start_as_current_span("deep", attributes={"gen_ai.system": "x", **deep}):
        pass


def drawn(_):
    random.seed(1)
    with chat():
        return random.random()


def exported(_):
    with chat():
        pass
    return list(EXPORTED)


def concurrent(_):
    async def one(name):
        with chat(name):
            await asyncio.sleep(0)
            with chat("within " + name):
                await asyncio.sleep(0)

    async def both():
        await asyncio.gather(one("a"), one("b"))

    asyncio.run(both())


def score(example, output):
    with tracer.start_as_current_span("judge", attributes={"gen_ai.operation.name": "chat"}):
        return {"score": 1, "component_feedback": {"planner": "well done"} if example["do"] == "genai" else {}}
