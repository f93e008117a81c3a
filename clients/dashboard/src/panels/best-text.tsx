/** The best code and text, and a button that copies the text. */

import { useEffect, useState } from "preact/hooks";
import type { Excerpt } from "../generated/events";
import { useWhole, wholeText } from "../loading";
import { Block, Inline } from "../parts/text";
import { changedTexts, changesTo } from "../state/changes";
import type { Candidate } from "../state/reduce";
import type { View } from "../state/view";
import { Code } from "./code";

export function BestText({ view, best, api }: { view: View; best: Candidate; api: string }) {
  const hasNewCode = changesTo(view, best).length > 0;
  const texts = hasNewCode ? changedTexts(best, view.candidates[0]) : Object.entries(best.texts);
  return (
    <>
      {hasNewCode && (
        <>
          <h3>Best code</h3>
          <Code view={view} candidate={best} />
          {texts.length === 0 && <p class="quiet">Its text is the seed's.</p>}
        </>
      )}
      {texts.length > 0 && <h3>{best.index === 0 ? "The seed's text" : "Best text"}</h3>}
      {texts.map(([component, text]) => (
        <div key={component}>
          <p class="quiet">
            <Inline text={component} length={120} />{" "}
            <Copy text={text} name={component} path={wholeText(api, best.index, component)} />
          </p>
          <Block {...text} label={component} />
        </div>
      ))}
    </>
  );
}

/** Puts a text on the clipboard; one of which the events hold a part is loaded first. */
function Copy({ text, name, path }: { text: Excerpt; name: string; path: string }) {
  const [wanted, setWanted] = useState(false);
  const [copied, setCopied] = useState(false);
  const whole = useWhole(wanted && text.omitted > 0 ? path : null);
  const found = text.omitted === 0 ? text.text : (whole.value?.text ?? null);
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
