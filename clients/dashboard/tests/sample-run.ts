/** A run of any size: its events, and the server's answers about it. Every text passes through `text`. */

import type { Excerpt, PageEvent } from "../src/generated/events";

export interface SampleOptions {
  readonly candidates?: number;
  readonly rows?: number;
  readonly driven?: boolean;
  readonly code?: boolean;
  /** What a program, a model or a row fills a field with. */
  readonly text?: (field: string, usual: string) => string;
}

export interface Sample {
  readonly events: PageEvent[];
  readonly answers: Record<string, unknown>;
}

export const RUN = "0193e0c1-run";

const WORDS =
  "Classify the ticket by its team and urgency. Read the whole message first. If it names an invoice, a refund or a payment, the team is billing. Quote the sentence that decides. Answer with the label alone, in lower case.".split(
    " ",
  );

/** Return numbers from 0 to 1 that are the same each time. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

export function sampleRun(options: SampleOptions = {}): Sample {
  const { candidates: size = 12, rows = 30, driven = false, code = false } = options;
  const text = options.text ?? ((_field: string, usual: string) => usual);
  const sent = (field: string, usual: string): Excerpt => ({ text: text(field, usual), omitted: 0 });
  const draw = random(7);
  const events: Record<string, unknown>[] = [];
  const answers: Record<string, unknown> = {};
  const api = `/api/runs/${RUN}`;
  const difficulty = Array.from({ length: rows }, () => draw());
  events.push({
    event: "run",
    run_id: RUN,
    name: text("name", "tickets, second try"),
    status: driven ? "running" : "completed",
    reason: driven ? null : text("reason", "max_metric_calls was reached"),
    program: text("program", "tickets"),
    program_version: "1.2",
    created: "2026-01-05T10:00:00Z",
    started: "2026-01-05T10:00:02Z",
    completed: driven ? null : "2026-01-05T11:12:00Z",
    settings: { max_metric_calls: 4000, reflection_lm: text("setting", "openai/gpt-5") },
    budget: 4000,
    components: ["instructions", "style"].map((name) => text("component", name)),
    splits: { train: 40, val: rows, test: 25 },
    sampled: null,
    reflection_model: text("model", "openai/gpt-5"),
    output: text("output", "runs/tickets"),
    parent: null,
    driver: driven ? text("driver", "process 4711 on build-3") : null,
    driven,
    store: text("store", "runs/evolverpc.db"),
    warnings: [text("message", "2 of 30 validation rows have the same content")],
    commands: [
      { command: text("command", `evolverpc show ${RUN}`), what: text("what", "prints the result") },
      { command: text("command", `evolverpc resume ${RUN}`), what: text("what", "continues the run") },
    ],
  });
  events.push({
    event: "rows",
    start: 0,
    ids: difficulty.map((_, row) => text("row", `ticket-${row}`)),
    labels: difficulty.map((_, row) => text("label", `My order ${1_000 + row} has not arrived, where is it now?`)),
    total: rows,
    training: false,
  });
  let best = 0;
  const means: number[] = [];
  for (let index = 0; index < size; index += 1) {
    const skill = 0.35 + 0.5 * (1 - Math.exp(-index / (size / 3))) + 0.1 * (draw() - 0.5);
    const raced = index > 2 && index % 9 === 4;
    const scores = difficulty.map((hard, row) => {
      if (raced && row > rows * 0.6) return null;
      const value = skill + 0.55 - hard + 0.3 * (draw() - 0.5);
      return Math.round(Math.max(0, Math.min(1, value)) * 10) / 10;
    });
    const known = scores.filter((score) => score !== null);
    means[index] = known.reduce((sum, score) => sum + score, 0) / known.length;
    if ((means[index] as number) > (means[best] as number)) best = index;
    const parent = index === 0 ? [] : [Math.floor(index * draw() ** 0.5 * 0.999)];
    if (index > 5 && index % 7 === 0) parent.push((parent[0] as number) > 0 ? (parent[0] as number) - 1 : 1);
    const words = WORDS.map((word, at) => ((at * 31 + index * 7) % 11 === 0 ? `${word}${index}` : word));
    events.push({
      event: "candidate",
      at: 30 + index * 60,
      index,
      digest: `d${index}`,
      parents: parent,
      iteration: index,
      score: means[index],
      metric_calls: rows + index * (rows + 6),
      found: new Date(Date.UTC(2026, 0, 5, 10, 0) + index * 60_000).toISOString(),
      cost_usd: 0.013 * index,
      scores,
      texts: {
        [text("component", "instructions")]: sent("text", words.join(" ")),
        [text("component", "style")]: sent("text", index % 2 ? "Be brief." : "Be brief and polite."),
      },
      code: code ? { branch: text("branch", `evolve/x/${index}`), commit: `c0ffee${index}` } : null,
      front: index > 3 ? [best, index - 1] : [best],
      best,
    });
    if (index === 0) continue;
    addProposals(events, answers, index, parent);
  }
  function addProposals(
    list: Record<string, unknown>[],
    found: Record<string, unknown>,
    index: number,
    parent: number[],
  ) {
    for (const [shift, outcome] of [
      [0, "kept"],
      [20, index % 3 ? "rejected" : "raced_out"],
      [40, index % 4 ? "rejected" : "empty"],
    ] as const) {
      const at = 30 + index * 60 - 30 + shift;
      const kept = outcome === "kept";
      list.push({
        event: "proposal",
        key: `p${at}`,
        at,
        decided: kept ? 30 + index * 60 : at + 15,
        iteration: index,
        parents: parent,
        components: [text("component", "instructions")],
        size: 3,
        before: 1.2,
        after: outcome === "empty" ? null : kept ? 2.1 : 0.9,
        outcome,
        why: text("why", kept ? "better on its minibatch: 1.2 -> 2.1 over 3 rows" : "not better on its minibatch"),
        candidate: kept ? index : null,
        digest: kept ? `d${index}` : `x${at}`,
        merge: kept && parent.length > 1,
        mutation: code ? 20 + index * 60 : null,
      });
      if (size <= 40) found[`${api}/proposal?at=${at}`] = proposalAnswer(sent, text);
    }
    list.push({ event: "budget", at: 30 + index * 60, metric_calls: rows + index * (rows + 6) });
    if (code) {
      list.push({
        event: "mutation",
        at: 20 + index * 60,
        commit: index % 3 ? `c0ffee${index}` : null,
        request: sent("request", "Cache the lookup of teams."),
        stage: index % 3 ? null : text("stage", "check"),
        reason: index % 3 ? null : sent("reason", "2 tests failed"),
        files: [text("file", "src/teams.py")],
        summary: sent("summary", "Cache the lookup of teams"),
        cost_usd: 0.12,
        log: sent("transcript", "I read src/teams.py and add a cache."),
        diff: sent(
          "diff",
          "--- a/src/teams.py\n+++ b/src/teams.py\n@@ -1,2 +1,3 @@\n import json\n-def team(x):\n+@cache\n+def team(x):",
        ),
      });
    }
  }
  events.push({
    event: "results",
    candidates: ["pending", "pending"],
    rows: [0, 1],
    numbers: [size * 60, size * 60 + 1],
    scores: [0.5, null],
  });
  events.push({
    event: "failures",
    failed: 7,
    evaluated: 900,
    cells: {},
    words: [text("words", "7 examples; on 2 rows: val ticket-3, ...; by candidates: 0 (4 times), 3 (3 times)")],
    groups: [
      {
        type: text("type", "KeyError"),
        status: "program_error",
        count: 7,
        rows: [text("row", "val ticket-3")],
        row_count: 2,
        candidates: { "0": 4, "3": 3 },
        messages: { [text("message", "'team'")]: 5, [text("message", "'urgency'")]: 1 },
        message_count: 3,
        message: text("message", "'team'"),
        traceback: text(
          "traceback",
          "Traceback (most recent call last):\n  File \"tickets.py\", line 12, in evaluate\nKeyError: 'team'",
        ),
        log: text("log", "reading ticket-3"),
        row: text("row", "val ticket-3"),
        candidate: "0",
      },
    ],
  });
  events.push({
    event: "spending",
    cost: "$1.4321 + 2 results without a price",
    table: {
      heading: "What was spent on what",
      columns: ["kind", "calls", "examples", "input tokens", "output tokens", "cost", "seconds"],
      rows: [
        [text("kind", "evaluate"), "900", "900", "100,000", "9,000", "$1.1000", "410"],
        [text("model", "through the gateway: openai/gpt-5-mini"), "900", "1 failed", "1", "1", "$1.0000", ""],
      ],
    },
  });
  events.push({
    event: "failure",
    seconds: 0,
    at: 200,
    iteration: 3,
    step: text("step", "reflection"),
    message: text("failed", "TimeoutError: no answer"),
    details: text("details", "Traceback (most recent call last):\nTimeoutError: no answer"),
  });
  events.push({
    event: "steer",
    key: "s1",
    at: 200,
    action: text("action", "pin"),
    requested: "2026-01-05T10:05:00Z",
    by: text("by", "ann@build-3"),
    text: text("detail", "pin candidate 3"),
    outcome: text("outcome", "taken"),
  });
  events.push({
    event: "now",
    phase: driven ? "optimizing" : null,
    iteration: size,
    metric_calls: rows + (size - 1) * (rows + 6) + (driven ? 9 : 0),
    evaluated: 900,
    in_flight: driven ? 8 : 0,
    rate: driven ? 11.4 : null,
    longest: driven
      ? [
          {
            row: text("row", "val 7"),
            candidate: text("candidate", "3"),
            seconds: 95,
            limit_s: 300,
            endpoint: text("endpoint", "http://127.0.0.1:8100"),
          },
        ]
      : [],
    last_result: "2026-01-05T10:07:00Z",
    no_result_s: driven ? 1.5 : null,
    timeouts: 0,
    usual_s: 0.7,
    waiting: driven ? 3 : 0,
    waiting_for: driven ? text("waiting", "no endpoint is left; last error: connection refused") : null,
    waiting_since: driven ? text("waiting since", "2026-01-05T10:28:00Z") : null,
    reflecting_since: null,
    reflecting: [],
    endpoints: driven
      ? [
          { name: text("endpoint", "http://127.0.0.1:8100"), state: "up", slots: 8, in_flight: 8, detail: null },
          {
            name: "http://127.0.0.1:8101",
            state: text("state", "resting"),
            slots: 8,
            in_flight: 0,
            detail: text("detail", "connection refused; again in 12 s"),
          },
        ]
      : [],
    active_seconds: 1822,
    beat_age_s: driven ? 0.4 : null,
    lost: false,
    seconds_left: driven ? 1500 : null,
    cost_at_end_usd: driven ? 2.2 : null,
  });
  events.push({
    event: "notices",
    notices: driven
      ? [
          {
            kind: "waiting",
            title: text("title", "Waits for a server that answers, for 2 min"),
            text: [text("waiting", "no endpoint is left; last error: connection refused")],
            commands: [],
          },
        ]
      : [],
  });
  if (!driven) {
    const fact = (label: string, usual: string) => ({ label: text("label", label), text: text("fact", usual) });
    events.push({
      event: "summary",
      best,
      test: { seed: 0.52, best: 0.81, rows: "25 test rows", of_test: true },
      compared: null,
      low: (means[best] as number) - 0.07,
      high: (means[best] as number) + 0.03,
      story: [text("story", "On 25 test rows the seed scores 0.52 and the best candidate (11) scores 0.81.")],
      certificate: [fact("verdict", "improved: the best candidate scores 0.29 more"), fact("test", "25 rows")],
      no_improvement: [fact("because", "3 worse on their minibatch"), fact("try", "another `reflection_lm`")],
      facts: [fact("metric calls", "812 of 4,000"), fact("ended", "paused: a line\nand another one")],
      tables: [
        {
          heading: text("heading", "Model calls"),
          columns: [text("column", "model"), "calls"],
          rows: [[text("model", "openai/gpt-5"), "12"]],
        },
      ],
    });
  }
  events.push({
    event: "position",
    end: size * 60 + 10,
    complete: !driven,
  });
  for (let index = 0; index < Math.min(size, 40); index += 1) {
    for (let row = 0; row < Math.min(rows, 40); row += 1) {
      answers[`${api}/cell?candidate=${index}&row=${row}`] = cellAnswer(sent, text);
    }
  }
  answers[`${api}/explanation`] = explanation(size - 1, sent, text);
  const line = (at: number, kind: string, usual: string) => ({ at, kind, text: text("event", usual) });
  const lines = [
    line(300, "failure", "iteration 5: reflection failed: the model does not answer"),
    line(200, "rejected", "proposal not kept: 2 -> 1, sum over its minibatch"),
    line(60, "candidate", "candidate 1 from 0: 0.5 best so far"),
  ];
  answers[`${api}/history`] = { items: lines, next: "7" };
  answers[`${api}/history?after=7`] = { items: [line(0, "candidate", "the seed scores 0.4")], next: null };
  answers[`${api}/history?words=failed`] = { items: lines.slice(0, 1), next: null };
  answers["/api/runs"] = { runs: [0, 1, 2].map((at) => runSummary(at, text)) };
  return { events: events as unknown as PageEvent[], answers };
}

type Text = (field: string, usual: string) => string;
type Sent = (field: string, usual: string) => Excerpt;

function result(sent: Sent, text: Text) {
  return {
    status: text("status", "ok"),
    score: 0.7,
    output: sent("output", '{"team": "billing", "urgency": "high"}'),
    feedback: sent("feedback", "The team is right; the urgency should be low."),
    component_feedback: sent("component_feedback", "instructions: state when urgency is low"),
    error: null,
    log: sent("log", "1 call of gpt-5-mini"),
  };
}

function explanation(best: number, sent: Sent, text: Text) {
  const rows = proposalAnswer(sent, text).rows;
  const change = (candidate: number) => ({
    candidate,
    against: 0,
    title: `Candidate ${candidate}: 0.52 -> 0.81 on validation`,
    origin: "From the seed. Iteration 1, after 36 metric calls.",
    moved: "9 rows are better, 1 is worse and 20 the same",
    proposal: 60,
    groups: [
      { name: "Better", count: 9, rows },
      { name: "Worse", count: 1, rows },
    ],
  });
  return { best, overall: change(best), steps: [change(1), change(best)], steps_omitted: 2 };
}

function cellAnswer(sent: Sent, text: Text) {
  const step = (name: string, steps: unknown[]) => ({
    name: text("step", name),
    component: text("component", "instructions"),
    input: sent("input", "My card was charged twice."),
    output: sent("output", "billing"),
    error: null,
    seconds: 0.82,
    input_tokens: 310,
    output_tokens: 12,
    steps,
  });
  return {
    input: sent("input", "My card was charged twice. Please help!"),
    result: result(sent, text),
    steps: [step("classify", [step("model call", [])])],
    no_steps: null,
    number: 17,
    seconds: 0.9,
    input_tokens: 310,
    output_tokens: 12,
    cost_usd: 0.0004,
  };
}

function proposalAnswer(sent: Sent, text: Text) {
  return {
    size: 3,
    rows: [
      {
        row: text("row", "ticket-3"),
        split: "train",
        input: sent("input", "Where is my refund?"),
        before: result(sent, text),
        after: result(sent, text),
      },
    ],
    prompts: [
      {
        component: text("component", "instructions"),
        model: text("model", "openai/gpt-5"),
        prompt: sent("prompt", "Here are the instructions and what went wrong.\n\n# Example 1"),
        hints: [text("hint", "Answers name the product.")],
        records: sent("records", "Inputs: My card was charged twice."),
        answer: sent("answer", "```\nClassify the ticket.\n```"),
        usage: [{ again: null, input_tokens: 2311, output_tokens: 412, cost_usd: 0.0071, seconds: 6.4 }],
      },
    ],
    texts: {
      [text("component", "instructions")]: {
        before: sent("text", "Classify the ticket by its team."),
        after: sent("text", "Classify the ticket by its team. Read the whole message first."),
      },
    },
  };
}

function runSummary(at: number, text: Text) {
  return {
    run_id: at === 0 ? RUN : `run-${at}`,
    name: at === 2 ? null : text("name", `tickets ${at}`),
    program: text("program", "tickets"),
    created: "2026-01-05T10:00:00Z",
    figures: {
      status: text("status", ["completed", "failed", "running"][at] as string),
      program: text("program", "tickets"),
      seed: "0.4",
      best: String(0.6 + at / 10),
      candidates: String(5 + at),
      "metric calls": "1,000",
      cost: "$1.2000",
    },
    curve: [
      [30, 0.4],
      [200 + 30 * at, 0.5],
      [900, 0.6 + at / 10],
    ],
    settings: { minibatch_size: 3 + at, seed: 0, model: text("setting", "openai/gpt-5") },
  };
}
