/** API keys, for owners: make, list and revoke them. */

import { useState } from "preact/hooks";
import { useList } from "../../loading";
import { RequestButton, useAction } from "../../parts/action";
import { Field, Form, stated } from "../../parts/form";
import { time } from "../../parts/format";
import { List } from "../../parts/shown";
import { Inline } from "../../parts/text";
import type { Schema } from "../schema";
import { useMayManage } from "../session";

const ROLES = [
  ["editor", "editor: also connects, optimizes, promotes"],
  ["viewer", "viewer: reads"],
  ["owner", "owner: also keys, members, secrets"],
] as const;

type Key = Schema<"KeyView">;

export function KeysView() {
  const mayManage = useMayManage();
  const list = useList<Key>(mayManage ? "/keys" : null);
  if (!mayManage) {
    return (
      <>
        <h1>Keys</h1>
        <p class="empty">Only owners see and make keys.</p>
      </>
    );
  }
  return (
    <>
      <h1>Keys</h1>
      <NewKey onDone={list.reload} />
      <List list={list} empty={<p>No key yet.</p>}>
        {(keys) => (
          <section class="panel">
            <h2>All keys</h2>
            <ul class="rows">
              {keys.map((key) => (
                <Row key={key.key_id} shown={key} onChange={list.reload} />
              ))}
            </ul>
          </section>
        )}
      </List>
    </>
  );
}

function Row({ shown, onChange }: { shown: Key; onChange: () => void }) {
  const expired = shown.expires !== null && new Date(shown.expires) <= new Date();
  return (
    <li>
      <Inline as="strong" text={shown.name} length={80} />
      <span>{shown.role}</span>
      <span class="quiet mono">grk_{shown.key_id.slice(0, 12)}...</span>
      <span class="quiet">made {time(shown.created_at)}</span>
      {shown.revoked !== null ? (
        <span class="bad">revoked {time(shown.revoked)}</span>
      ) : expired ? (
        <span class="warn">expired {time(shown.expires)}</span>
      ) : (
        <>
          {shown.expires !== null && <span class="quiet">expires {time(shown.expires)}</span>}
          <RequestButton
            label="Revoke"
            title="Revoke the key"
            about={shown.name}
            submit="Revoke"
            asked={() => ["DELETE", `/keys/${encodeURIComponent(shown.key_id)}`]}
            onDone={onChange}
          >
            <p>
              <Inline text={shown.name} length={120} /> is refused from now on, and people who signed in with it are
              signed out. This cannot be undone.
            </p>
          </RequestButton>
        </>
      )}
    </li>
  );
}

function NewKey({ onDone }: { onDone: () => void }) {
  const { send, ...action } = useAction();
  const [made, setMade] = useState<Schema<"NewKey"> | null>(null);
  return (
    <section class="panel">
      <h2>Make a key</h2>
      <Form
        {...action}
        class="row in-line"
        submit="Make it"
        onSubmit={async (given) => {
          const found = await send<Schema<"NewKey">>("POST", "/keys", stated(given));
          if (found === null) return false;
          setMade(found);
          onDone();
          return true;
        }}
      >
        <Field label="What it is for" name="name" required />
        <Field label="Role" name="role" options={ROLES} />
        <Field
          label="Days until it expires"
          name="expires_in_days"
          type="number"
          min={0}
          step="any"
          placeholder="never"
        />
      </Form>
      {made !== null && (
        <div class="notices" role="status">
          <p>
            The key of <Inline text={made.name} length={80} />. It is shown now and never again:
          </p>
          <p>
            <code class="secret">{made.key}</code>
          </p>
          <button type="button" onClick={() => setMade(null)}>
            I have it
          </button>
        </div>
      )}
    </section>
  );
}
