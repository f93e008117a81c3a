/** The best text, in part if it is long, and the line of a program that loads it. */

import { useEffect, useState } from "preact/hooks";
import { useWhole, wholeText } from "../answers";
import type { Excerpt } from "../generated/events";
import { counted } from "../parts/format";
import { Block, Inline } from "../parts/text";
import { href } from "../route";
import type { Candidate } from "../state/reduce";
import type { View } from "../state/view";

/** Lines of a text that are shown. */
const LINES = 10;

export function BestText({ view, best, api }: { view: View; best: Candidate; api: string }) {
  const { run } = view.latest;
  return (
    <>
      <h3>{best.index === 0 ? "The seed's text" : "Best text"}</h3>
      {Object.entries(best.texts).map(([component, text]) => (
        <div key={component} class="bounded">
          <p class="quiet">
            <Inline text={component} length={120} />{" "}
            <Copy text={text} name={component} path={wholeText(api, best.index, component)} />
          </p>
          <Beginning text={text} label={component} whole={href("text", { candidate: best.index })} />
        </div>
      ))}
      {run?.output && (
        <p>
          In a program: <code>{loadCall(run.output)}</code>
        </p>
      )}
    </>
  );
}

/** The first lines of a text; how many are left out, and a link to the whole. */
function Beginning({ text, label, whole }: { text: Excerpt; label: string; whole: string }) {
  const lines = text.text.split("\n");
  const left = lines.length - LINES;
  return (
    <>
      <Block text={left > 0 ? lines.slice(0, LINES).join("\n") : text.text} label={label} />
      {(left > 0 || text.omitted > 0) && (
        <p class="quiet">
          {[
            left > 0 && counted(left, "more line"),
            text.omitted > 0 && counted(text.omitted, "more character", "more characters"),
          ]
            .filter(Boolean)
            .join(" and ")}
          : <a href={whole}>the whole text</a>
        </p>
      )}
    </>
  );
}

/** The call that loads the best candidate of an output folder, as the report prints it. */
function loadCall(output: string): string {
  return `evolverpc.load_candidate(${JSON.stringify(output)})`;
}

/** Puts a text on the clipboard; one of which the events hold a part is loaded first. */
function Copy({ text, name, path }: { text: Excerpt; name: string; path: string }) {
  const [wanted, setWanted] = useState(false);
  const [copied, setCopied] = useState(false);
  const whole = useWhole(wanted && text.omitted > 0 ? path : null);
  const found = text.omitted === 0 ? text.text : whole.kind === "ready" ? whole.value.text : null;
  useEffect(() => {
    if (wanted && found !== null) navigator.clipboard.writeText(found).then(() => setCopied(true));
  }, [wanted, found]);
  if (navigator.clipboard === undefined) return null; // not on a page of an untrusted origin
  return (
    <button type="button" aria-label={`Copy ${name}`} onClick={() => setWanted(true)}>
      {copied ? "Copied" : "Copy"}
    </button>
  );
}
