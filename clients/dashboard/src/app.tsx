/** The frame of every view: the run and its state, the views, the place in the journal. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Embedded } from "./embedded";
import { useKnown } from "./observed";
import { Header } from "./parts/header";
import { Steering } from "./parts/steering";
import { Tabs } from "./parts/tabs";
import { Travel } from "./parts/travel";
import { href, NAMES, useRoute, VIEWS } from "./route";
import { LIVE, viewAt } from "./state/view";
import { Store } from "./store";
import { RunView } from "./views/run";
import { RunsView } from "./views/runs";

export function App({ data }: { data: Embedded | null }) {
  const store = useMemo(() => new Store(data), [data]);
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
  useEffect(() => setAt(LIVE), [known.run]);

  const api = `/api/runs/${encodeURIComponent(run?.run_id ?? known.run ?? "last")}`;
  return (
    <div class="page">
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        Skip to the view
      </button>
      <header class="top">
        <Header view={view} status={known.status} />
        {data !== null && <LeftOut data={data} />}
        <Tabs
          label="Views"
          views={VIEWS.filter((name) => !(embedded && name === "runs")).map((name) => [href(name), NAMES[name]])}
          current={href(route.view)}
        />
      </header>
      <main ref={main} tabIndex={-1} id="view" aria-label={NAMES[route.view]}>
        {route.view === "runs" ? (
          <RunsView current={run?.run_id ?? null} onShow={(run) => store.show(run)} />
        ) : run === undefined ? (
          ["connecting", "live"].includes(known.status.kind) && (
            <p class="empty">The run's record has not arrived yet.</p>
          )
        ) : (
          <RunView name={route.view} view={view} params={route.params} api={api} />
        )}
      </main>
      {run !== undefined && route.view !== "runs" && (
        <footer class="row travel">
          <Travel end={view.latest.position?.end ?? 0} view={view} onChange={setAt} />
          {!embedded && <Steering view={view} api={api} />}
        </footer>
      )}
    </div>
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
