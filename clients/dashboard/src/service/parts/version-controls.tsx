/** What a person may do with a version: promote it, take the promotion back, deliver it. */

import { useState } from "preact/hooks";
import { Block, Inline } from "../../parts/text";
import { useAction } from "../loading";
import type { Schema, Version } from "../schema";
import { useMayWrite } from "../session";
import { DialogButton } from "./dialog";
import { Field, TextField } from "./field";
import { ProblemNotice } from "./shown";

interface Props {
  readonly version: Version;
  readonly onChange: () => void;
}

export function VersionControls({ version, onChange }: Props) {
  if (!useMayWrite()) return null;
  return (
    <fieldset class="controls" aria-label="Controls of the version">
      {version.active ? (
        <DialogButton label="Roll back" title="Roll back">
          {(close) => <RollBack version={version} onDone={() => [close(), onChange()]} />}
        </DialogButton>
      ) : (
        <DialogButton label="Promote" title="Promote the version" primary>
          {(close) => <Promote version={version} onDone={() => [close(), onChange()]} />}
        </DialogButton>
      )}
      <DialogButton label="Deliver" title="Deliver the version">
        {() => <Deliver version={version} />}
      </DialogButton>
    </fieldset>
  );
}

function Promote({ version, onDone }: { version: Version; onDone: () => void }) {
  const { busy, problem, send } = useAction();
  const [reason, setReason] = useState("");
  const certified = version.verdict === "improved" && !version.leaks;
  const promote = async () => {
    const body = certified ? {} : { force: true, reason: reason.trim() };
    if ((await send("POST", `/program/${encodeURIComponent(version.program_id)}/promote`, body)) !== null) onDone();
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void promote();
      }}
    >
      <p>
        It becomes the active version of its program, in place of the present one.{" "}
        {!certified &&
          (version.verdict === null
            ? "It has no certificate: state why it is promoted all the same. The reason is recorded."
            : `Its certificate states "${version.verdict}"${version.leaks ? ", weakened by leaks" : ""}: state why it is promoted all the same. The reason is recorded.`)}
      </p>
      {!certified && (
        <Field label="Reason" name="reason" problem={problem}>
          {(props) => <textarea {...props} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />}
        </Field>
      )}
      {problem?.errors.length === 0 && <ProblemNotice problem={problem} />}
      <p class="field">
        <button type="submit" class="primary" disabled={busy || (!certified && reason.trim() === "")}>
          Promote
        </button>
      </p>
    </form>
  );
}

function RollBack({ version, onDone }: { version: Version; onDone: () => void }) {
  const { busy, problem, send } = useAction();
  const rollBack = async () => {
    if ((await send("POST", `/program/${encodeURIComponent(version.program_id)}/rollback`)) !== null) onDone();
  };
  return (
    <>
      <p>The version that was active before this one becomes active again.</p>
      <ProblemNotice problem={problem} />
      <p class="field">
        <button type="button" class="primary" disabled={busy} onClick={rollBack}>
          Roll back
        </button>
      </p>
    </>
  );
}

function Deliver({ version }: { version: Version }) {
  const { busy, problem, send } = useAction();
  const [base, setBase] = useState("");
  const [title, setTitle] = useState("");
  const [delivered, setDelivered] = useState<Schema<"Delivered"> | null>(null);
  const deliver = async (mode: "pull_request" | "patch") => {
    const more = mode === "patch" ? {} : { ...given("base", base), ...given("title", title) };
    const path = `/program/${encodeURIComponent(version.program_id)}/deliver`;
    setDelivered(await send<Schema<"Delivered">>("POST", path, { mode, ...more }));
  };
  return (
    <>
      <p>
        A pull request has the report and the certificate; it needs a repository that was connected by the GitHub App. A
        patch is for <code>git am</code>, and is there if the version changes code.
      </p>
      <TextField
        label="Target branch"
        name="base"
        problem={problem}
        hint="Empty: the default branch."
        value={base}
        onChange={setBase}
      />
      <TextField label="Title" name="title" problem={problem} value={title} onChange={setTitle} />
      {problem?.errors.length === 0 && <ProblemNotice problem={problem} />}
      <p class="field tools">
        <button type="button" class="primary" disabled={busy} onClick={() => deliver("pull_request")}>
          {busy ? "Delivering" : "Open a pull request"}
        </button>
        <button type="button" disabled={busy} onClick={() => deliver("patch")}>
          Show the patch
        </button>
      </p>
      {delivered !== null && (
        <div role="status">
          {delivered.pull_request && (
            <p>
              Delivered:{" "}
              {/^https?:\/\//.test(delivered.pull_request) ? (
                <a href={delivered.pull_request} target="_blank" rel="noreferrer">
                  <Inline text={delivered.pull_request} length={200} />
                </a>
              ) : (
                <Inline text={delivered.pull_request} length={200} />
              )}
            </p>
          )}
          {delivered.patch && <Block text={delivered.patch} label="Patch" />}
        </div>
      )}
    </>
  );
}

function given(name: string, text: string): Record<string, string> {
  return text.trim() === "" ? {} : { [name]: text.trim() };
}
