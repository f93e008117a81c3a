"""The text of `docs/benchmarks.md` around the figures that the benchmarks end with."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

Figures = dict[str, Any]
"""The last line of a benchmark."""


class Measurement(NamedTuple):
    """What a benchmark ended with, and the machine, day and versions that it depends on."""

    machine: dict[str, str]
    figures: Figures


AT_LEAST = ("busy_vs_bare", "raced_vs_bare", "reached_on", "certified", "power_as_named", "tasks_within")
"""The keys whose limit is a lower one; all others must stay below theirs."""

BEFORE, AFTER = "<!-- figures\n", "\n-->\n"


def page(found: Mapping[str, Measurement]) -> str:
    """Return the whole page. `found`: the last measurement of each benchmark that has one."""
    sections = [INTRODUCTION, "## Limits", _limits(found)]
    for name, write in SECTIONS.items():
        sections.append(f"## {name}")
        if name not in found:
            sections.append("Not run yet.")
            continue
        machine, figures = found[name]
        facts = ", ".join(f"{key} {value}" for key, value in machine.items() if key != "date")
        sections.append(f"Measured on {machine['date']}: {facts}.")
        sections.append(f"Skipped: {figures['skipped']}." if "skipped" in figures else write(figures).strip())
    raw = json.dumps({name: each._asdict() for name, each in found.items()}, indent=1)
    return "\n\n".join(sections) + f"\n\n{BEFORE}{raw}{AFTER}"


def held(text: str) -> dict[str, Measurement]:
    """Return the measurements that a page holds."""
    _, begun, rest = text.partition(BEFORE)
    raw, ended, _ = rest.partition(AFTER)
    return {name: Measurement(**each) for name, each in json.loads(raw).items()} if begun and ended else {}


def table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _limits(found: Mapping[str, Measurement]) -> str:
    rows = []
    for name, (machine, figures) in found.items():
        for key, limit in figures.get("limits", {}).items():
            least = key in AT_LEAST
            kept = figures[key] >= limit if least else figures[key] <= limit
            side = "at least" if least else "at most"
            verdict = "yes" if kept else "**no**"
            rows.append((f"`{key}`", name, f"{figures[key]:g}", f"{side} {limit:g}", verdict, machine["date"]))
    return table(("key", "benchmark", "measured", "limit", "kept", "date"), rows)


INTRODUCTION = """\
# Benchmarks

`make bench` runs these and rewrites this page. Each can be run alone (`.venv/bin/python benchmarks/NAME.py`), ends
with a line of JSON, and leaves with status 1 where it misses a limit. Absolute times are those of one machine; so
what is compared runs in turn, in one tree of processes, and is given as a ratio: the median over rounds of the ratio
within a round. Everything speaks over loopback: a real network adds its own time to each call. No benchmark calls a
model.

Client and servers share the machine's cores, and any other load takes its share from both: run this on
an idle one. `python benchmarks/report.py NAME ...` runs some and keeps the others' figures, so each section states
when and on which machine it was measured."""


def _call_overhead(figures: Figures) -> str:
    sizes = list(figures["vs_raw"])
    rows = [
        (f"`{key}`", words, *(f"{figures[key][size]:g}" for size in sizes))
        for key, words in (
            ("vs_raw", "our server over bare aiohttp and orjson"),
            ("with_stdio_hop_vs_raw", "the same with the program in a process of its own"),
            ("vs_peer_style", "our server over `requests.post` to FastAPI"),
            ("vs_peer_style_typed", "our server over the same with a typed answer"),
        )
    ]
    return f"""
One `evaluate` call with a body of the stated size in both directions.

{table(("key", "", *sizes), rows)}

`envelope_check_growth` {figures["envelope_check_growth"]:g}: what checking a request's envelope costs at 5 MB over
what it costs at 2 KB. It does not look at the payload.
"""


def _banking77(figures: Figures) -> str:
    ran = figures["python"]
    row = (f"{ran['seed_score']:.2f}", f"{ran['best_score']:.2f}", ran["metric_calls"], f"{ran['seconds']:g} s")
    return f"""
A text of word weights that a perceptron improves (`benchmarks/word_weights.py`), on real messages of ten intents.
Scores are on test rows, which neither proposals nor selection have seen.

{table(("seed", "best", "metric calls", "time"), [row])}

The labels' own names as keywords score {figures["label_names"]:.2f} without any optimisation.
"""


def _gepa_loop(figures: Figures) -> str:
    task, pxn, single = (figures[name] for name in ("task", "pxn_seconds", "single_seconds"))
    rows = [
        ("ours", f"{pxn['ours']:.2f} s", f"{single['ours']:.2f} s"),
        ("in one process", f"{pxn['in_process']:.2f} s", f"{single['in_process']:.2f} s"),
        ("gepa-rpc 0.2.2", f"{pxn['gepa_rpc']:.2f} s", ""),
    ]
    return f"""
The same GEPA run three ways: {task["metric_calls"]} metric calls, examples of {task["example_ms"]} ms,
{task["slots"]} at once, {task["val_rows"]} validation rows, minibatches of 3; once with PxN(2,4), eight proposals an
iteration, and once with a single one. Scores and proposals are digests of the texts they depend on, and the
benchmark fails unless all ways find the same candidates ({figures["candidates"]["pxn"]} and
{figures["candidates"]["single"]} of them). Medians of {figures["rounds"]} rounds:

{table(("", "PxN(2,4)", "single"), rows)}

- **Ours**: the remote adapter, a fleet of one endpoint, everything recorded in SQLite before GEPA sees it.
- **In one process**: no server, no wire, no record. One thread for each slot; all items of a `batch_evaluate` share
  them. It is the floor: `pxn_vs_inprocess` and `single_vs_inprocess` are what the wire, the fleet and the journal
  cost together. All examples are equally long here, so that they begin and end in bursts, which is the hardest case
  for a wire.
- **gepa-rpc**: the adapter of its wheel against a server of its protocol (`benchmarks/gepa_rpc_server.py`) with 64
  workers. The adapter has no `batch_evaluate`, so GEPA evaluates the tasks of an iteration one after another; that
  is what `pxn_vs_gepa_rpc` measures. Its own command cannot ask for PxN, so it was given to `gepa.optimize` directly.

The reflection model is a function that sleeps {task["reflection_ms"]} ms. It gets an iteration's prompts together in
all three, as `gepa.lm.LM` does in gepa-rpc's own configuration. A slower model, the same for all, brings every ratio
nearer to 1. So do more validation rows: with 20, GEPA in one process itself took 0.21 of gepa-rpc's time.
"""


def _long_tail(figures: Figures) -> str:
    heavier = ", ".join(f"{over:g} for sigma {sigma}" for sigma, over in figures["computed_window_by_sigma"].items())
    rows = [("ours, measured (`vs_bound`)", f"{figures['vs_bound']:g}")]
    rows += [(f"{name}, computed", f"{over:g}") for name, over in figures["computed"].items()]
    return f"""
{figures["examples"]:,} examples of log-normal length (sigma {figures["sigma"]:g}), 64 at once, recorded. No run can
take less than the longest example ({figures["longest_seconds"]:g} s), nor less than the sum shared by the slots; the
larger of the two, {figures["bound_seconds"]:g} s, is the bound.

{table(("", "over the bound"), rows)}

What is computed is arithmetic without the cost of a call: the window starts the next in order whenever one ends
(what it is above 1 is luck with the order, as the lengths are unknown beforehand), chunks of 8 wait for the slowest
of each eight, waves of 64 for the slowest of each 64. With a heavier tail that luck alone is beyond the limit: the
computed window is at {heavier}.
"""


def _scale(figures: Figures) -> str:
    compared = ("filled_s", "cpu_s_per_1000", "memory_mb_per_1000")
    rows = [
        (
            count,
            ran["in_flight"],
            f"{ran['busy']:.4f}",
            f"{ran['busy_vs_bare']:.4f}",
            *(f"{ran[key]['ours']:g} / {ran[key]['bare']:g}" for key in compared),
        )
        for count, ran in figures["endpoints"].items()
    ]
    head = ("endpoints", "in flight", "busy", "`busy_vs_bare`", "filled, s, ours / bare", "CPU, s", "MB")
    raced = figures.get("raced_vs_bare")
    speed, growth = figures["full_speed_ms_per_example"], figures["journal_ms_per_example"]
    return f"""
Stub endpoints of 64 slots, all in one process, with examples of 2 to 6 s. The endpoints measure how many of their
slots run something, from the moment when as many examples were started as there are slots (`filled`) until the last
one is started; before and after are ramps. `bare` sends the same schedule with aiohttp alone, one worker for each
slot, and checks, keeps and repeats nothing. CPU and memory are the client's for 1,000 examples of about a kilobyte;
memory is the growth of its peak, results included.

{table(head, rows)}

- `busy_vs_bare` has its limit with 16 endpoints.
- `raced_vs_bare` {"(not measured yet)" if raced is None else f"{raced:g}"}: the same for a race
  (`--validation race`) of one proposal that is never dropped: each block of rows waits for a decision.
- `journal_share` {figures["journal_share"]:g}: by how much longer than without a store the run with 16 endpoints
  takes until its last example is started, as a share; how long the rest then takes is luck with the order. Values
  around zero are noise of the machine.
- `journal_growth` {figures["journal_growth"]:g}: what the journal costs per example beyond the first 20,000 of a run
  ({growth["late"]:g} ms) over the first 1,000 of another ({growth["early"]:g} ms), in turn. The journal is fed alone
  here, as a run's window feeds it (validation sets of 200 rows, each attempt on record before it would be sent):
  between servers its growth would drown.
- With examples of no length, through one endpoint, an example takes {speed["ours"]:g} ms; {speed["unrecorded"]:g} ms
  without a store and {speed["bare"]:g} ms by bare aiohttp. This is the most that one client and one such server do
  on this machine.
"""


def _resume(figures: Figures) -> str:
    return f"""
A run of {figures["recorded_examples"]:,} recorded examples, 200 validation rows and {figures["candidates"]} candidates
is resumed with a larger budget: {figures["resume_s"]:g} s from the command to the first new example at the server.
`evolverpc replay` of the demo's run, with no server running, takes {figures["replay_demo_s"]:g} s. Both include the
start of two Python processes.
"""


def _trees(figures: Figures) -> str:
    return f"""
{figures["trees"]} commits of a generated repository of {figures["files"]:,} files, each in a tree of its own.

- `vs_checkout_index` {figures["vs_checkout_index"]:g}: the time to write all trees' files, asked for at once as by a
  server, over that of as many plain `git checkout-index` one after the other
  ({figures["ours_seconds"]:g} s and {figures["checkout_index_seconds"]:g} s). We let git write four at a time.
- `metadata_mb` {figures["metadata_mb"]:g}: megabytes on disk beside those files, what was added to `.git` included.
- {figures["ready_seconds"]:g} s pass until a program runs in each, asked for at once.
- `evaluations_seconds` {figures["evaluations_seconds"]:g}: {figures["trees"]} examples of
  {figures["example_seconds"]:g} s, one for each commit, asked for at once of a server that has the trees. The
  benchmark fails where one sees another's files, folder for temporary files, or working directory.
"""


def _sandboxes(figures: Figures) -> str:
    kinds = (("plain processes", "plain"), ("`process`", "process"), ("`bubblewrap`", "bubblewrap"))
    rows = [
        (
            title,
            f"{figures[f'{kind}_1_warm_s'] * 1000:.0f} ms",
            f"{figures[f'{kind}_20_cold_s']:.2f} s",
            f"{figures[f'{kind}_20_warm_s']:.2f} s",
            f"{figures[f'{kind}_exec_s'] * 1000:.1f} ms",
        )
        for title, kind in kinds
    ]
    return f"""
The tickets example in {figures["at_once"]} sandboxes, asked for at once, until each answers: its repository unpacked,
its server and its program started. Environments were installed before. `cold` is the first time in a fresh runtime.
Plain processes are the same server without any of that, started in turn with the others.

{table(("", "one start", "20 at once, cold", "20 at once, warm", "a command"), rows)}

Bubblewrap's sandboxes take {figures["bubblewrap_vs_plain"]:g} times as long as plain processes.
"""


def _gateway(figures: Figures) -> str:
    return f"""
A model's streamed answer of {figures["events"]} events, straight and through the gateway in turn: {figures["pairs"]}
pairs.

- `streamed_added_ms` {figures["streamed_added_ms"]:g}: what the gateway adds to the whole of it, the median over pairs
  ({figures["streamed_straight_ms"]:g} ms straight), {figures["streamed_first_added_ms"]:g} ms of it before the first.
- An answer in one piece: {figures["whole_added_ms"]:g} ms more than {figures["whole_straight_ms"]:g} ms.
"""


def _component_feedback(figures: Figures) -> str:
    task = figures["task"]
    return f"""
A program of three prompts, each of which must hold {task["rules"]} rules of its own and none of another's
(`benchmarks/three_prompts.py`), optimised with feedback by component and with the same feedback on the example as a
whole. The scripted reflection model adds every rule that the feedback it is shown names as not followed. Both ways have
{task["metric_calls"]} metric calls; {task["seeds"]} seeds; the goal is the perfect score on {
        task["val_rows"]
    } validation
rows. The task is made so that only feedback on the right component can fix a failure: it shows that the feedback
arrives there, not how much a real program gains.

{
        table(
            ("", "seeds that reach the goal", "mean best score"),
            [
                ("with steps", figures["reached_on"], f"{figures['mean_on']:g}"),
                ("without", figures["reached_off"], f"{figures['mean_off']:g}"),
            ],
        )
    }
"""


def _steps_overhead(figures: Figures) -> str:
    labels = {
        "plain": "takes no `trace`; in TypeScript, records nothing",
        "unused": "takes `trace`, records nothing",
        "steps": f"{figures['steps']} steps, traces not wanted",
        "kept": f"{figures['steps']} steps, kept by the server (`trajectory_ref`)",
        "sent": f"{figures['steps']} steps, sent in the answer",
    }
    rows = [
        (label, *(cell for each in (way, f"ts_{way}") for cell in _call(each, figures)))
        for way, label in labels.items()
    ]
    return f"""
A call of `evaluate` with one example of 2 KB that is answered at once with 2 KB. Medians of {figures["calls"]} calls.

{table(("program", "a call in Python", "ratio", "in TypeScript", "ratio"), rows)}

An optimizer wants traces of minibatches only, not of validation.
"""


def _calibration(figures: Figures) -> str:
    level = f", which needs p at most {figures['error']:g}" if "error" in figures else ""
    rules = [
        (f"the certificate: its verdict on sealed test rows{level} (`aa_improved`)", "aa_improved"),
        ("one standard error: validation went up by more than that", "aa_beyond_one_se"),
        ("GEPA's own: validation went up", "aa_val_went_up"),
    ]
    tasks = [
        (
            name,
            *(f"{task[key]:g}" for key in ("candidates", "raw_luck", "shrunk_luck", "raw_error", "shrunk_error")),
            f"{task['seed_error']:g}",
        )
        for name, task in figures["tasks"].items()
    ]
    covered = figures["coverage_by_kind"]
    head = ("task", "candidates", "luck, raw", "luck, shrunk", "error, raw", "error, shrunk", "error, seed")
    return f"""
Real GEPA through the remote adapter, against a server of a program whose true scores are known
(`benchmarks/luck_program.py`): scores of 0 and 1 on eight kinds of rows; the scores of two candidates correlate over
the rows by about a half. A scripted model proposes. {figures["aa_runs"]:,} A/A runs, in which no proposal is truly
better than the seed; {figures["gain_runs"]:,} runs whose best candidate is truly better by
{figures["mean_true_gain"]:g} on average. There are 100 test rows; half of the runs are noisy, and evaluate these twice.

How often an A/A run is called improved:

{table(("rule", "share"), ((words, f"{figures[key]:g}") for words, key in rules))}

- `uncovered` {figures["uncovered"]:g}: the share of 95 % intervals that do not hold the true gain. It is held by
  {covered["aa"]:g} of those of A/A runs, and by {covered["gain"]:g} of the others; more often by those of the bet, in
  noisy runs.
- The certificate calls {figures["gain_improved"]:g} of the others improved.
- `certified` {figures["certified"]:g}: the share of {figures["certified_runs"]} comparisons that show a true gain of 5
  points on as many test rows as `check` asks for ({figures["certified_rows"]:,} on average), by 15 rows that it
  evaluates twice.

The winner's curse: the best candidate's validation score less its true one. "Luck" is its mean over the runs of a task,
"error" the mean of its size. The last column is the error of the seed's validation score, which nothing has chosen.

{table(head, tasks)}

- `curse_left` {figures["curse_left"]:g}: the size of the luck after shrinkage over that before, means over the tasks.
- The error after shrinkage is {figures["error_left"]:g} of that before. The rest is no luck of the choice: the rows are
  a sample themselves, and the error of the seed, which was not chosen, is {figures["error_of_unchosen"]:g} of it.
- {figures["shrunk_coverage"]:g} of the 95 % intervals around the shrunk scores hold the true one.
"""


def _certificate(figures: Figures) -> str:
    def grid(name: str) -> str:
        kinds = figures[name]
        sizes = list(next(iter(kinds.values()))["now"])
        rows = (
            (kind, *(f"{each['now'][size]:.3f} ({each['before'][size]:.3f})" for size in sizes))
            for kind, each in kinds.items()
        )
        return table(("differences", *(f"{size} rows" for size in sizes)), rows)

    named = "; ".join(
        f"{each['rows']} rows for {gain}, which {each['shown']:g} of tests show"
        for gain, each in figures["named"].items()
    )
    return f"""
The rule of a certificate (`gepa_client/certificate/verdict.py`) at its first error, {figures["error"]:g}, on
simulated scores from 0 to 1. In brackets: the rule of before, the sign-flip test of all rows with Student's interval.

The share of tests that state "improved" where the true mean difference is 0 or below, of {figures["runs"]:,} each:

{grid("no_gain")}

The same with a gain, of {figures["runs"] // 2:,} each: this is the power, and what the validity costs.

{grid("gain")}

- `false_improved` {figures["false_improved"]:g}: the largest share of the first table; of the rule of before
  {figures["false_improved_before"]:g}.
- `power_as_named` {figures["power_as_named"]:g}: `check` names the rows that show a gain in 80 % of runs. For graded
  scores with a deviation of 0.2 between rows: {named}.
"""


def _call(way: str, figures: Figures) -> tuple[str, str]:
    taken = figures["microseconds"].get(way)
    return ("", "") if taken is None else (f"{taken} us", f"{figures.get(f'{way}_vs_plain', 1):g}")


def _sample_efficiency(figures: Figures) -> str:
    tasks, few, first = figures["tasks"], figures["few_rows"], figures["first_seed"]
    ratios = [_ratio_row(name, task, figures) for name, task in tasks.items()]
    arms = [
        (
            f"`{name}`",
            arm.replace("_", " "),
            _calls(each["calls"]),
            ", ".join(f"{quality:.3f}" for quality in each["quality"]),
        )
        for name, task in tasks.items()
        for arm, each in task["arms"].items()
    ]
    last = first + max(task["seeds"] for task in tasks.values()) - 1
    within, above, wanted = figures["within"], figures["above"], figures["limits"]["tasks_within"]
    of_ratios = ("task", "budget", "seeds", "best baseline", "its calls", "calls of `race`", "ratio", "95 % interval")
    of_arms = ("task", "arm", "calls to the goal", "mean quality after a quarter, half, three quarters and the whole")
    return f"""
The metric calls that racing needs for the held-out quality that the best run without it has at its budget. For each
task and seed GEPA runs once with each arm, at the whole budget: `race` through the whole client over HTTP, with
{figures["slots"]} slots, the others in one process. The benchmark fails if the client's runs of these, with the first
seed, have other candidates or calls. Arms:

- `full`: GEPA's defaults, on all validation rows;
- `few rows`: the same on {few} of the validation rows, chosen at random;
- `current best`: with `--candidate-selection-strategy current_best`;
- `race`: with `--validation race`. All others are the baselines: what a user can choose without racing.

How the figures are made was fixed before any run of these seeds:

- The quality of a run after so many metric calls is that of its best candidate by then, on rows that neither proposals
  nor selection see. The calls by which a raced run compares its best candidate with the seed after the search are
  added to each point of its curve; no baseline makes such a comparison.
- An arm reaches a quality at the first number of calls at which the mean over seeds is at least that.
- The goal of a task is the highest mean that any baseline has at the whole budget. The best baseline is the one that
  reaches the goal with the fewest calls. The ratio is the calls of `race` over those of the best baseline, and there is
  none if `race` does not reach the goal within the budget, which counts as above each limit.
- The interval is a bootstrap over seeds, which finds goal and best baseline anew in each draw.
- The seeds are {first:,} to {last:,}, by which nothing was ever chosen. Programs, budgets and the rows that a seed
  draws from are those with which the defaults of races were chosen (decision 0022).

{table((*of_ratios, f"at most {within:g}"), ratios)}

The aim is a ratio of at most {within:g} on {wanted} tasks (`tasks_within`) and of more than {above:g} on none
(`tasks_above`).

{table(of_arms, arms)}

The landscape (`benchmarks/landscape.py`) has six groups of rows and a skill in each; its held-out quality is exact. Its
minibatches have 3 rows, those of the other tasks 20, whose held-out quality is the score on rows that are left over.
"""


def _ratio_row(name: str, task: Figures, figures: Figures) -> tuple[Any, ...]:
    arms, ratio = task["arms"], task["ratio"]
    reached = {arm: each["calls"] for arm, each in arms.items() if arm != "race" and each["calls"] is not None}
    best = min(reached, key=lambda arm: reached[arm])
    ends = " to ".join("none" if end is None else f"{end:.2f}" for end in task["interval"])
    return (
        f"`{name}`",
        f"{task['metric_calls']:,}",
        task["seeds"],
        best.replace("_", " "),
        _calls(reached[best]),
        _calls(arms["race"]["calls"]),
        "none" if ratio is None else f"{ratio:.2f}",
        ends,
        "yes" if ratio is not None and ratio <= figures["within"] else "**no**",
    )


def _calls(calls: int | None) -> str:
    return "not reached" if calls is None else f"{calls:,}"


def _service_load(figures: Figures) -> str:
    rows = [
        (when, *(f"{figures[f'{key}{suffix}']:g}" for key in ("submit_p50_ms", "submit_p99_ms", "submitted_per_s")))
        for when, suffix in (("alone", ""), (f"with {figures['streams_open']} streams open", "_with_streams"))
    ]
    return f"""
Twenty tenants submit 100 jobs a second to one process of the API over a SQLite file, at times that do not depend on
the answers. Each submission costs the API {figures["submit_cpu_ms"]:g} ms of a core.

{table(("submissions", "median ms", "99 % ms", "accepted a second"), rows)}

- {figures["streams_open"]} streams of 50 jobs were open {figures["opened_s"]:g} s after they were asked for; the last
  one ended {figures["ended_s"]:g} s after the first job was cancelled. `streams_lost` {figures["streams_lost"]}.
- The API had {figures["rss_before_mb"]:g} MB before and {figures["rss_peak_mb"]:g} MB with all of it.
- Of 200 jobs of 20 tenants, one of whom submitted 105 before the others, every tenant's first came by turn
  {figures["first_job_turn"]}; the last jobs of tenants with as many came within {figures["spread_of_turns"]} turns.
  Their mean waits were {figures["wait_least_s"]:g} to {figures["wait_most_s"]:g} s, that of the one with most jobs
  {figures["wait_greedy_s"]:g} s.
"""


def _service_start(figures: Figures) -> str:
    rows = [
        (words, f"{figures[f'{key}_median']:g}", f"{figures[key]:g}")
        for key, words in (("claimed_s", "the job is placed"), ("first_example_s", "the first scored example"))
    ]
    return f"""
`evolverpc service up` with bubblewrap, and the tickets example: from `POST /optimize` to what its stream shows, in
{figures["rounds"]} jobs one after the other. The first job of a repository, which packs its commit, took
{figures["cold_first_example_s"]:g} s.

{table(("until", "median s", "longest s"), rows)}
"""


def _service_steps(figures: Figures) -> str:
    rows = [
        (words, *(f"{figures[f'{kind}_{way}']:g}" for way in ("first_s", "warm_p50_s", "warm_most_s", "row_p50_s")))
        for kind, words in (("plain", "plain functions"), ("dspy", "imports DSPy"))
    ]
    return f"""
`evolverpc service up` with bubblewrap, and prompt steps on one row of a program that does nothing: seconds of the first
one, of those on a version that was used before, with a pause before each, and of those without a pause.

{table(("program", "first", "warm, median", "warm, longest", "without a pause, median"), rows)}

20 steps of two tenants that were asked for at once took {figures["steps_at_once_s"]:g} s, 60 tasks of 4 s in eight
sandboxes {figures["long_batch_s"]:g} s, and {figures["short_tasks"]} tasks of 0.25 s with a limit of 1 s each
{figures["short_batch_s"]:g} s, of which {figures["false_timeouts"]} timed out.
"""


SECTIONS: dict[str, Callable[[Figures], str]] = {
    "call_overhead": _call_overhead,
    "banking77": _banking77,
    "gepa_loop": _gepa_loop,
    "long_tail": _long_tail,
    "scale": _scale,
    "resume": _resume,
    "trees": _trees,
    "sandboxes": _sandboxes,
    "gateway": _gateway,
    "component_feedback": _component_feedback,
    "steps_overhead": _steps_overhead,
    "calibration": _calibration,
    "certificate": _certificate,
    "sample_efficiency": _sample_efficiency,
    "service_load": _service_load,
    "service_start": _service_start,
    "service_steps": _service_steps,
}
"""By the benchmark's name, in the order they run."""

NAMES = tuple(SECTIONS)
