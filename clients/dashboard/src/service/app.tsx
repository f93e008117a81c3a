/** The frame of every view: who is signed in, the views, and what is shown without a session. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useLoaded } from "../loading";
import { Tabs } from "../parts/tabs";
import { Inline } from "../parts/text";
import { request, SIGNED_OUT } from "../request";
import { usePlace } from "../route";
import { jobOfAddress, type ServiceView, VIEWS, viewAddress } from "./place";
import type { Session } from "./schema";
import { SessionContext } from "./session";
import { SignIn } from "./sign-in";
import { AccessView } from "./views/access";
import { JobPage } from "./views/job";
import { JobsView } from "./views/jobs";
import { NewView } from "./views/new";
import { RepositoriesView } from "./views/repositories";
import { UsageView } from "./views/usage";
import { VersionView } from "./views/version";
import { VersionsView } from "./views/versions";
import { WorkView } from "./views/work";

const SHOWN: Record<ServiceView, readonly [name: string, show: (params: URLSearchParams) => ComponentChildren]> = {
  jobs: ["Jobs", () => <JobsView />],
  new: ["New optimization", (params) => <NewView params={params} />],
  work: ["Steps and batches", (params) => <WorkView key={params.toString()} params={params} />],
  repositories: ["Repositories", () => <RepositoriesView />],
  versions: ["Versions", () => <VersionsView />],
  version: ["Version", (params) => <VersionView key={params.get("id")} id={params.get("id") ?? ""} />],
  usage: ["Usage", () => <UsageView />],
  access: ["Access", (params) => <AccessView params={params} />],
};
const OVER = "You were signed out: the key was revoked or has expired, or the session is older than 12 hours.";
const RETRY_MS = 3_000;
/** Views that not every role has. */
const NOT_OF: Partial<Record<ServiceView, readonly string[]>> = { new: ["viewer"], access: ["viewer", "editor"] };

export function App() {
  const [isWaiting, setWaiting] = useState(true);
  const [reason, setReason] = useState<string | null>(null);
  const { value, problem, reload } = useLoaded<Session>("/session", { everyMs: isWaiting ? RETRY_MS : 0 });
  const isOut = problem?.status === 401;
  const session = isOut ? null : value;
  const place = usePlace();
  const main = useRef<HTMLElement>(null);
  const job = jobOfAddress();
  const view = VIEWS.find((name) => name === place.name) ?? "jobs";
  const title = job === null ? SHOWN[view][0] : "Job";

  useEffect(() => setWaiting(session === null && !isOut), [session, isOut]);
  useEffect(() => {
    document.title = session ? `${title} \u2013 EvolveRPC service` : "EvolveRPC service";
  }, [title, session]);
  useEffect(() => {
    const over = () => {
      setReason(OVER);
      reload();
    };
    if (session !== null) addEventListener(SIGNED_OUT, over);
    return () => removeEventListener(SIGNED_OUT, over);
  }, [session, reload]);

  const signOut = async () => {
    const answer = await request("DELETE", "/session");
    if (!answer.ok) return;
    setReason("You are signed out.");
    reload();
  };

  if (session === null) {
    return (
      <Frame>
        <main id="view" aria-label="Sign in">
          {isOut ? (
            <SignIn reason={reason} onSignedIn={reload} />
          ) : (
            <p class="empty" role="status">
              {problem !== null ? "The service does not answer; the page asks again by itself." : "Loading."}
            </p>
          )}
        </main>
      </Frame>
    );
  }
  const shownInTabs = VIEWS.filter((name) => name !== "version" && !NOT_OF[name]?.includes(session.role));
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
            views={shownInTabs.map((name) => [viewAddress(name), SHOWN[name][0]])}
            current={viewAddress(job !== null ? "jobs" : view === "version" ? "versions" : view)}
          />
        }
      >
        <main ref={main} tabIndex={-1} id="view" aria-label={title}>
          {job !== null ? (
            <JobPage key={job} id={job} place={place} />
          ) : NOT_OF[view]?.includes(session.role) ? (
            <h1>
              {title}: not for the role {session.role}
            </h1>
          ) : (
            SHOWN[view][1](place.params)
          )}
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
      <header class="top">
        <div class="row title">
          <strong>EvolveRPC</strong>
          {session}
        </div>
        {tabs}
      </header>
      {children}
    </div>
  );
}
