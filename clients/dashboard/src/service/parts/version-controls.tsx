/** What a person may do with a version: promote it, take the promotion back, deliver it. */

import { useState } from "preact/hooks";
import { RequestButton, useAction } from "../../parts/action";
import { DialogButton } from "../../parts/dialog";
import { Field, Form, stated } from "../../parts/form";
import { Block, Inline } from "../../parts/text";
import type { Schema, Version } from "../schema";
import { useMayWrite } from "../session";

interface Props {
  readonly version: Version;
  readonly onChange: () => void;
}

export function VersionControls({ version, onChange }: Props) {
  const path = `/program/${encodeURIComponent(version.program_id)}`;
  if (!useMayWrite()) return null;
  const certified = version.verdict === "improved" && !version.leaks;
  return (
    <fieldset class="row controls" aria-label="Controls of the version">
      {version.active ? (
        <RequestButton
          title="Roll back"
          submit="Roll back"
          asked={() => ["POST", `${path}/rollback`]}
          onDone={onChange}
        >
          <p>
            The version that was active before this one becomes active again. If there was none, no version is active.
          </p>
        </RequestButton>
      ) : (
        <RequestButton
          label="Promote"
          title="Promote the version"
          primary
          submit="Promote"
          asked={(given) => ["POST", `${path}/promote`, certified ? {} : { force: true, ...stated(given) }]}
          onDone={onChange}
        >
          <p>
            It becomes the active version of its program, in place of the present one.{" "}
            {!certified &&
              (version.verdict === null
                ? "It has no certificate: state why it is promoted all the same. The reason is recorded."
                : `Its certificate states "${version.verdict}"${version.leaks ? ", weakened by leaks" : ""}: state why it is promoted all the same. The reason is recorded.`)}
          </p>
          {!certified && <Field label="Reason" name="reason" long required />}
        </RequestButton>
      )}
      <DialogButton label="Deliver" title="Deliver the version">
        {() => <Deliver version={version} />}
      </DialogButton>
    </fieldset>
  );
}

function Deliver({ version }: { version: Version }) {
  const { send, ...action } = useAction();
  const [delivered, setDelivered] = useState<Schema<"Delivered"> | null>(null);
  const path = `/program/${encodeURIComponent(version.program_id)}/deliver`;
  return (
    <>
      <Form
        {...action}
        submit="Open a pull request"
        sending="Delivering"
        others={{ patch: "Show the patch" }}
        onSubmit={async (given, pressed) =>
          setDelivered(
            await send("POST", path, pressed ? { mode: pressed } : { mode: "pull_request", ...stated(given) }),
          )
        }
      >
        <p>
          A pull request has the report and the certificate; it needs a repository that was connected by the GitHub App.
          A patch is for <code>git am</code>, and is there if the version changes code.
        </p>
        <Field label="Target branch" name="base" hint="Empty: the default branch." />
        <Field label="Title" name="title" />
      </Form>
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
