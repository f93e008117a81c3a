/** Connected repositories, and the form that connects another one. */

import { useState } from "preact/hooks";
import { Facts } from "../../parts/facts";
import { time } from "../../parts/format";
import { Inline } from "../../parts/text";
import { useAction, useList } from "../loading";
import { TextField } from "../parts/field";
import { repositoryName } from "../parts/names";
import { List, ProblemNotice } from "../parts/shown";
import { Badge } from "../parts/status";
import { viewAddress } from "../place";
import type { Repository, Schema } from "../schema";
import { useMayWrite } from "../session";

const EVERY_MS = 15_000;

export function RepositoriesView() {
  const list = useList<Repository>("/repositories", EVERY_MS);
  const mayWrite = useMayWrite();
  return (
    <>
      <h1>Repositories</h1>
      {mayWrite && <Connect onDone={list.reload} />}
      <List
        list={list}
        empty={
          <p>
            No repository is connected.{" "}
            {mayWrite
              ? "Give the address of one above. Its gepa.toml names the program."
              : "Those that others connect are listed here."}
          </p>
        }
      >
        {(repositories) => (
          <ul class="cards">
            {repositories.map((each) => (
              <li key={each.client_id} class="panel card">
                <div class="card-title">
                  <Inline as="h2" text={repositoryName(each.repo_url)} length={80} />
                  <Badge text={each.status} />
                </div>
                <Inline as="p" class="mono" text={each.repo_url} length={300} />
                {each.detail !== null && <Inline as="p" class="warn" text={each.detail} length={400} />}
                <Facts
                  as="figures"
                  facts={[
                    ["branch", each.default_branch ?? "unknown"],
                    ["commit", each.head?.slice(0, 10) ?? "unknown"],
                    ["updated", time(each.updated)],
                    ["GitHub App", each.installation_id !== null && `installation ${each.installation_id}`],
                  ]}
                />
                {mayWrite && (
                  <div class="card-foot">
                    <a class="button" href={viewAddress("new", { repository: each.client_id })}>
                      Optimize
                    </a>
                  </div>
                )}
              </li>
            ))}
          </ul>
        )}
      </List>
    </>
  );
}

function Connect({ onDone }: { onDone: () => void }) {
  const { busy, problem, send } = useAction();
  const [url, setUrl] = useState("");
  const [installation, setInstallation] = useState("");
  const [connected, setConnected] = useState<string | null>(null);
  const submit = async () => {
    setConnected(null);
    const named = installation.trim();
    const body = { repo_url: url.trim(), ...(named === "" ? {} : { installation_id: named }) };
    const found = await send<Schema<"Connected">>("POST", "/connect-git", body);
    if (found === null) return;
    setConnected(url.trim());
    setUrl("");
    onDone();
  };
  return (
    <section class="panel">
      <h2>Connect a repository</h2>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <TextField
          label="Address"
          name="repo_url"
          problem={problem}
          hint="Of a git repository, such as https://github.com/you/program. It is read at once."
          value={url}
          onChange={setUrl}
          input={{ required: true, inputMode: "url" }}
        />
        <details>
          <summary>A private repository at GitHub</summary>
          <TextField
            label="Installation of the GitHub App"
            name="installation_id"
            problem={problem}
            hint="Its number. It is entered here once the App is installed."
            value={installation}
            onChange={setInstallation}
            input={{ inputMode: "numeric" }}
          />
          <GitHubApp onInstalled={setInstallation} />
        </details>
        {problem !== null && problem.errors.length === 0 && <ProblemNotice problem={problem} />}
        <p>
          <button type="submit" class="primary" disabled={busy || url.trim() === ""}>
            {busy ? "Reading it" : "Connect"}
          </button>{" "}
          <span role="status">
            {connected !== null && (
              <>
                Connected: <Inline text={connected} length={200} />
              </>
            )}
          </span>
        </p>
      </form>
    </section>
  );
}

/** Installing the App: at GitHub, whose answer holds a confirmation that is given here. */
function GitHubApp({ onInstalled }: { onInstalled: (installation: string) => void }) {
  const { busy, problem, send } = useAction();
  const [address, setAddress] = useState<string | null>(null);
  const [confirmation, setConfirmation] = useState("");
  const begin = async () => {
    const found = await send<Schema<"InstallUrl">>("POST", "/github/install");
    if (found !== null) setAddress(found.url);
  };
  const confirm = async () => {
    const found = await send<Schema<"InstallationView">>("POST", "/github/installations", {
      confirmation: confirmation.trim(),
    });
    if (found !== null) onInstalled(found.installation_id);
  };
  return (
    <>
      {address === null ? (
        <p>
          <button type="button" disabled={busy} onClick={begin}>
            Install the GitHub App
          </button>
        </p>
      ) : (
        <>
          <p>
            {address.startsWith("https://") ? (
              <a href={address} target="_blank" rel="noreferrer">
                Install it at GitHub
              </a>
            ) : (
              <Inline text={address} length={500} />
            )}
            . GitHub then opens an answer of this service: copy its <code>confirmation</code> to this field.
          </p>
          <TextField
            label="Confirmation"
            name="confirmation"
            problem={problem}
            value={confirmation}
            onChange={setConfirmation}
          />
          <p>
            <button type="button" disabled={busy || confirmation.trim() === ""} onClick={confirm}>
              Confirm
            </button>
          </p>
        </>
      )}
      {problem !== null && problem.errors.length === 0 && <ProblemNotice problem={problem} />}
    </>
  );
}
