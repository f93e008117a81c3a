/** What a run waits for at this moment, and since when. */

import { exampleAge } from "../parts/example-age";
import { candidateOrProposal, counted, duration } from "../parts/format";
import { rowName } from "../parts/row-name";
import { stallOf } from "./stall";
import type { View } from "./view";

/** Seconds from which on a wait is stated: shorter ones are the pace of the work. */
const LONG_S = 10;

/** `since`: ISO 8601, null if it is not known; `seconds`: until now. */
export interface Wait {
  readonly what: string;
  readonly detail: string | null;
  readonly since: string | null;
  readonly seconds: number | null;
}

/** Return what the run waits for, unless its examples are stuck, which the header states: the cause before its effects; `at`: milliseconds since 1970. */
export function waitsOf(view: View, at: number): readonly Wait[] {
  const { run, now } = view.latest;
  if (run?.driven !== true || now === undefined) return [];
  const passed = (iso: string | null) => {
    const began = Date.parse(iso ?? "");
    return Number.isNaN(began) ? null : Math.max(0, (at - began) / 1_000);
  };
  const waits: Wait[] = [];
  if (now.lost) {
    const since = now.beat_age_s === null ? null : new Date(at - now.beat_age_s * 1_000).toISOString();
    waits.push({ what: "a sign of life of the optimizer", detail: run.driver, since, seconds: now.beat_age_s });
  }
  if (now.waiting_for !== null) {
    const since = now.waiting_since ?? now.last_result;
    waits.push({ what: "a server that answers", detail: now.waiting_for, since, seconds: passed(since) });
  }
  const reflecting = passed(now.reflecting_since);
  if (reflecting !== null && reflecting >= LONG_S) {
    waits.push({
      what:
        run.reflection_model === null ? "new texts of the program" : `an answer of the model ${run.reflection_model}`,
      detail: now.reflecting.length > 0 ? `a new text of ${now.reflecting.join(", ")}` : null,
      since: now.reflecting_since,
      seconds: reflecting,
    });
  }
  const quiet = now.no_result_s ?? 0;
  if (waits.length === 0 && (now.in_flight ?? 0) > 0 && quiet >= LONG_S && stallOf(view) === null) {
    const first = now.longest[0];
    const ends =
      first?.limit_s == null
        ? "no time limit ends this example"
        : `its server ends this example after ${duration(first.limit_s)}`;
    waits.push({
      what: `${counted(now.in_flight ?? 0, "example")} in flight`,
      detail:
        first === undefined
          ? null
          : `longest: ${rowName(first.row)} with ${candidateOrProposal(first.candidate)}, ${exampleAge(now, first.seconds)}; ${ends}`,
      since: now.last_result,
      seconds: quiet,
    });
  }
  if (waits.length === 0 && now.phase === "connecting") {
    waits.push({ what: "its servers to answer", detail: null, since: run.started, seconds: passed(run.started) });
  }
  return waits;
}
