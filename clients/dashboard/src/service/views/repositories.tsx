/** Connected repositories, and the form that connects another one. */

import { useState } from "preact/hooks";
import { useList } from "../../loading";
import { useAction } from "../../parts/action";
import { Badge } from "../../parts/badge";
import { Facts } from "../../parts/facts";
import { Field, Form, stated } from "../../parts/form";
import { time } from "../../parts/format";
import { ProblemNotice } from "../../parts/problem";
import { List } from "../../parts/shown";
import { Inline } from "../../parts/text";
import { DeleteButton } from "../parts/delete-button";
import { repositoryName } from "../parts/names";
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
                <div class="row">
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
                    ["read", time(each.updated_at)],
                    ["GitHub App", each.installation_id !== null && `installation ${each.installation_id}`],
                  ]}
                />
                {mayWrite && <Controls repository={each} onChange={list.reload} />}
              </li>
            ))}
          </ul>
        )}
      </List>
    </>
  );
}

function Controls({ repository, onChange }: { repository: Repository; onChange: () => void }) {
  const { busy, problem, send } = useAction();
  const { client_id, repo_url, installation_id } = repository;
  const read = async () => {
    await send("POST", "/connect-git", { repo_url, installation_id });
    onChange();
  };
  return (
    <div class="row card-foot">
      <a class="button" href={viewAddress("new", { repository: client_id })}>
        Optimize
      </a>
      <button type="button" disabled={busy} onClick={read}>
        Read its present commit
      </button>
      <DeleteButton
        what="the repository"
        about={repositoryName(repo_url)}
        path={`/repositories/${encodeURIComponent(client_id)}`}
        note="Its jobs, steps, batches and versions are deleted too. The repository itself stays as it is."
        forced="Delete, also its active version"
        onDone={onChange}
      />
      <ProblemNotice problem={problem} />
    </div>
  );
}

function Connect({ onDone }: { onDone: () => void }) {
  const { send, ...action } = useAction();
  const [installation, setInstallation] = useState("");
  const [connected, setConnected] = useState<string | null>(null);
  return (
    <section class="panel">
      <h2>Connect a repository</h2>
      <Form
        {...action}
        submit="Connect"
        sending="Reading it"
        onSubmit={async (given) => {
          setConnected(null);
          const { repo_url, installation_id } = stated(given);
          const found = await send<Schema<"Connected">>("POST", "/connect-git", { repo_url, installation_id });
          if (found === null) return false;
          setConnected(String(repo_url));
          onDone();
          return true;
        }}
      >
        <Field
          label="Address"
          name="repo_url"
          hint="Of a git repository, such as https://github.com/you/program. It is read at once."
          required
          inputMode="url"
        />
        <details>
          <summary>A private repository at GitHub</summary>
          <Field
            label="Installation of the GitHub App"
            name="installation_id"
            hint="Its number. It is entered here once the App is installed."
            key={installation}
            defaultValue={installation}
            inputMode="numeric"
          />
          <GitHubApp onInstalled={setInstallation} />
        </details>
      </Form>
      <p role="status">
        {connected !== null && (
          <>
            Connected: <Inline text={connected} length={200} />
          </>
        )}
      </p>
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
    if (found !== null) onInstalled(String(found.installation_id));
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
          <Field
            label="Confirmation"
            name="confirmation"
            value={confirmation}
            onInput={(event) => setConfirmation(event.currentTarget.value)}
          />
          <p>
            <button type="button" disabled={busy || confirmation.trim() === ""} onClick={confirm}>
              Confirm
            </button>
          </p>
        </>
      )}
      <ProblemNotice problem={problem} />
    </>
  );
}
