/** The frame of every view: the run and its state, the views, the place in the journal. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Answers, AnswersContext } from "./answers";
import type { Status } from "./connection";
import type { Embedded } from "./embedded";
import { useKnown } from "./observed";
import { Header } from "./parts/header";
import { Steering } from "./parts/steering";
import { Travel } from "./parts/travel";
import { href, useRoute, VIEWS, type ViewName } from "./route";
import { LIVE, type View, viewAt } from "./state/view";
import { Store } from "./store";
import { NowView } from "./views/now";
import { ProgressView } from "./views/progress";
import { ReflectionView } from "./views/reflection";
import { ResultView } from "./views/result";
import { RowsView } from "./views/rows";
import { RunsView } from "./views/runs";
import { TextView } from "./views/text";
import { TreeView } from "./views/tree";

const NAMES: Record<ViewName, string> = {
  now: "Now",
  result: "Result",
  progress: "Progress",
  tree: "Tree",
  rows: "Rows",
  text: "Text",
  reflection: "Reflection",
  runs: "Runs",
};

export interface ViewProps {
  readonly view: View;
  readonly params: URLSearchParams;
  /** The beginning of the addresses of this run's details. */
  readonly api: string;
  readonly embedded: boolean;
}

export function App({ data }: { data: Embedded | null }) {
  const store = useMemo(() => new Store(data), [data]);
  const answers = useMemo(() => new Answers(data), [data]);
  const known = useKnown(store);
  const route = useRoute();
  const [at, setAt] = useState(LIVE);
  const view = useMemo(() => viewAt(known.state, at), [known.state, at]);
  const main = useRef<HTMLElement>(null);
  const run = view.latest.run;
  const embedded = data !== null;

  useEffect(() => {
    document.title = `${run?.name ?? run?.run_id ?? "Run"} \u2013 ${NAMES[route.view]}`;
  }, [run?.name, run?.run_id, route.view]);
  useEffect(() => answers.forget(), [known.run, known.resets, answers]);
  useEffect(() => setAt(LIVE), [known.run]);

  const api = `/api/runs/${encodeURIComponent(run?.run_id ?? known.run ?? "last")}`;
  const props: ViewProps = { view, params: route.params, api, embedded };
  return (
    <AnswersContext.Provider value={answers}>
      <div class="page">
        <button type="button" class="skip" onClick={() => main.current?.focus()}>
          Skip to the view
        </button>
        <header class="top">
          <Header view={view} status={known.status} />
          {data !== null && <LeftOut data={data} />}
          <nav class="tabs" aria-label="Views">
            {VIEWS.filter((name) => !(embedded && name === "runs")).map((name) => (
              <a key={name} href={href(name)} aria-current={name === route.view ? "page" : undefined}>
                {NAMES[name]}
              </a>
            ))}
          </nav>
        </header>
        <main ref={main} tabIndex={-1} id="view" aria-label={NAMES[route.view]}>
          {shown(route.view, props, store, known.status)}
        </main>
        {run !== undefined && route.view !== "runs" && (
          <footer class="travel">
            <Travel end={view.latest.position?.end ?? 0} view={view} onChange={setAt} />
            {!embedded && <Steering view={view} api={api} />}
          </footer>
        )}
      </div>
    </AnswersContext.Provider>
  );
}

/** What an exported file does not hold, and the command that shows it. */
function LeftOut({ data }: { data: Embedded }) {
  if (data.left_out.length === 0) return null;
  return (
    <p class="quiet">
      Not in this file: {data.left_out.join("; ")}. <code>{data.command}</code> shows them from the run's store.
    </p>
  );
}

function shown(name: ViewName, props: ViewProps, store: Store, status: Status) {
  if (name === "runs") return <RunsView {...props} onShow={(run) => store.show(run)} />;
  if (props.view.latest.run === undefined) {
    const waits = status.kind === "connecting" || status.kind === "live";
    return waits ? <p class="empty">The run's record has not arrived yet.</p> : null;
  }
  switch (name) {
    case "now":
      return <NowView {...props} />;
    case "result":
      return <ResultView {...props} />;
    case "progress":
      return <ProgressView {...props} />;
    case "tree":
      return <TreeView {...props} />;
    case "rows":
      return <RowsView {...props} />;
    case "text":
      return <TextView {...props} />;
    case "reflection":
      return <ReflectionView {...props} />;
  }
}
