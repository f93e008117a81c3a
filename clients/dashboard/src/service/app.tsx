/** The frame of every view: who is signed in, the views, and what is shown without a session. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Tabs } from "../parts/tabs";
import { Inline } from "../parts/text";
import { usePlace } from "../route";
import { jobOfAddress, type ServiceView, VIEWS, viewAddress } from "./place";
import { request, SIGNED_OUT } from "./request";
import type { Session } from "./schema";
import { SessionContext } from "./session";
import { SignIn } from "./sign-in";
import { JobPage } from "./views/job";
import { JobsView } from "./views/jobs";
import { KeysView } from "./views/keys";
import { NewView } from "./views/new";
import { RepositoriesView } from "./views/repositories";
import { UsageView } from "./views/usage";
import { VersionView } from "./views/version";
import { VersionsView } from "./views/versions";

const NAMES: Record<ServiceView, string> = {
  jobs: "Jobs",
  new: "New optimization",
  repositories: "Repositories",
  versions: "Versions",
  version: "Version",
  usage: "Usage",
  keys: "Keys",
};
const OVER = "You were signed out: the key was revoked or has expired, or the session is older than 12 hours.";
const RETRY_MS = 3_000;

type State =
  | { readonly kind: "connecting"; readonly lost: boolean }
  | { readonly kind: "signed out"; readonly reason: string | null }
  | { readonly kind: "signed in"; readonly session: Session };

export function App() {
  const [state, setState] = useState<State>({ kind: "connecting", lost: false });
  const place = usePlace();
  const main = useRef<HTMLElement>(null);
  const job = jobOfAddress();
  const view = VIEWS.find((name) => name === place.name) ?? "jobs";
  const title = job === null ? NAMES[view] : "Job";

  useEffect(() => {
    document.title = state.kind === "signed in" ? `${title} \u2013 EvolveRPC service` : "EvolveRPC service";
  }, [title, state.kind]);

  useEffect(() => {
    if (state.kind !== "connecting") return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let current = true;
    const ask = async () => {
      const answer = await request<Session>("GET", "/session");
      if (!current) return;
      if (answer.ok) setState({ kind: "signed in", session: answer.value });
      else if (answer.problem.status === 401) setState({ kind: "signed out", reason: null });
      else {
        setState({ kind: "connecting", lost: true });
        timer = setTimeout(ask, RETRY_MS);
      }
    };
    void ask();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [state.kind]);

  useEffect(() => {
    const over = () =>
      setState((before) => (before.kind === "signed in" ? { kind: "signed out", reason: OVER } : before));
    addEventListener(SIGNED_OUT, over);
    return () => removeEventListener(SIGNED_OUT, over);
  }, []);

  const signOut = async () => {
    const answer = await request("DELETE", "/session");
    if (answer.ok) setState({ kind: "signed out", reason: "You are signed out." });
  };

  if (state.kind !== "signed in") {
    return (
      <Frame>
        <main id="view" aria-label="Sign in">
          {state.kind === "signed out" ? (
            <SignIn reason={state.reason} onSignedIn={(session) => setState({ kind: "signed in", session })} />
          ) : (
            <p class="empty" role="status">
              {state.lost ? "The service does not answer; the page asks again by itself." : "Loading."}
            </p>
          )}
        </main>
      </Frame>
    );
  }
  const { session } = state;
  const shownInTabs = VIEWS.filter(
    (name) =>
      name !== "version" &&
      (name !== "new" || session.role !== "viewer") &&
      (name !== "keys" || session.role === "owner"),
  );
  return (
    <SessionContext.Provider value={session}>
      <Frame
        skip={() => main.current?.focus()}
        session={
          <>
            <span class="who">
              <Inline text={session.tenant_name ?? session.tenant} length={40} />
              <span class="quiet"> as {session.role}</span>
            </span>
            <button type="button" onClick={signOut}>
              Sign out
            </button>
          </>
        }
        tabs={
          <Tabs
            label="Service"
            views={shownInTabs.map((name) => [viewAddress(name), NAMES[name]])}
            current={viewAddress(job !== null ? "jobs" : view === "version" ? "versions" : view)}
          />
        }
      >
        <main ref={main} tabIndex={-1} id="view" aria-label={title}>
          {job === null ? shown(view, place.params) : <JobPage key={job} id={job} place={place} />}
        </main>
      </Frame>
    </SessionContext.Provider>
  );
}

interface FrameProps {
  readonly skip?: () => void;
  readonly session?: ComponentChildren;
  readonly tabs?: ComponentChildren;
  readonly children: ComponentChildren;
}

function Frame({ skip, session, tabs, children }: FrameProps) {
  return (
    <div class="page">
      {skip !== undefined && (
        <button type="button" class="skip" onClick={skip}>
          Skip to the view
        </button>
      )}
      <header class="top service">
        <div class="row title">
          <strong class="brand">EvolveRPC</strong>
          {session}
        </div>
        {tabs}
      </header>
      {children}
    </div>
  );
}

function shown(view: ServiceView, params: URLSearchParams) {
  switch (view) {
    case "jobs":
      return <JobsView />;
    case "new":
      return <NewView params={params} />;
    case "repositories":
      return <RepositoriesView />;
    case "versions":
      return <VersionsView />;
    case "version":
      return <VersionView key={params.get("id")} id={params.get("id") ?? ""} />;
    case "usage":
      return <UsageView />;
    case "keys":
      return <KeysView />;
  }
}
