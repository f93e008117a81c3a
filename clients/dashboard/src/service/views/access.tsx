/** Who and what reaches the tenant, for owners: API keys, members, and secrets, which are written and never shown. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useList, useLoaded } from "../../loading";
import { type Asked, RequestButton, useAction } from "../../parts/action";
import { type Described, Fields, Form, type Given, stated } from "../../parts/form";
import { time } from "../../parts/format";
import { List } from "../../parts/shown";
import { Inline } from "../../parts/text";
import { Filters } from "../parts/filters";
import type { Schema } from "../schema";

const ROLES = [
  ["editor", "editor: also connects, optimizes, promotes"],
  ["viewer", "viewer: reads"],
  ["owner", "owner: also keys, members, secrets"],
] as const;
const ROLE: Described = ["role", "Role", { options: ROLES }];
const DAYS = { type: "number", min: 0, step: "any", placeholder: "never" } as const;
const NEW_KEY: readonly Described[] = [
  ["name", "What it is for", { required: true }],
  ROLE,
  ["expires_in_days", "Days until it expires", DAYS],
];
const SUBJECT: Described = ["subject", "Subject", { hint: "`sub` of its tokens.", required: true }];
const NEW_SECRET: readonly Described[] = [
  ["name", "Name", { hint: "As of a variable: OPENAI_API_KEY.", required: true }],
  ["value", "Value", { hint: "It is never shown again.", type: "password", required: true }],
  ["host", "Host that gets it", { hint: "In its header Authorization; empty for keys of models." }],
];

const VIEWS: Record<string, () => ComponentChildren> = { keys: Keys, members: Members, secrets: Secrets };

export function AccessView({ params }: { params: URLSearchParams }) {
  const [chosen, Chosen] = Object.entries(VIEWS).find(([name]) => name === params.get("show")) ?? ["keys", Keys];
  return (
    <>
      <h1>Access</h1>
      <Filters label="What gives access" view="access" names={Object.keys(VIEWS)} current={chosen} />
      <Chosen />
    </>
  );
}

function Keys() {
  return (
    <Managed<Schema<"KeyView">>
      title="Keys"
      path="/keys"
      fields={NEW_KEY}
      asked={(given) => ["POST", "/keys", stated(given)]}
      row={({ key_id, name, role, created_at, expires }) => [
        key_id,
        name,
        `${role}, made ${time(created_at)}${expires === null ? "" : `, expires ${time(expires)}`}`,
      ]}
      over={({ revoked, expires }) =>
        revoked !== null
          ? `revoked ${time(revoked)}`
          : expires !== null && new Date(expires) <= new Date()
            ? "expired"
            : null
      }
      remove="Revoke"
      note="is refused from now on, and people who signed in with it are signed out. This cannot be undone."
    />
  );
}

function Members() {
  const issuers = useLoaded<Schema<"SignInWays">>("/session/ways").value?.issuers ?? [];
  if (issuers.length === 0) return <p class="empty">The operator of this service has configured no OIDC issuer.</p>;
  return (
    <Managed<Schema<"MemberView">>
      title="Members"
      path="/members"
      fields={[["issuer", "Issuer", { options: issuers.map((each) => [each, each]) }], SUBJECT, ROLE]}
      asked={(given) => ["POST", "/members", stated(given)]}
      row={({ member_id, subject, issuer, role }) => [member_id, subject, `${role}, of ${issuer}`]}
      remove="Remove"
      note="is signed out, and refused from now on."
    />
  );
}

function Secrets() {
  return (
    <Managed<Schema<"SecretView">>
      title="Secrets"
      path="/secrets"
      fields={NEW_SECRET}
      asked={({ name, value, host }) => [
        "PUT",
        `/secrets/${encodeURIComponent(String(name))}`,
        { value, headers: host === null ? [] : [{ host }] },
      ]}
      row={({ name, headers, updated_at }) => [
        name,
        name,
        [`written ${time(updated_at)}`, ...headers.map(({ host }) => host)].join(", for "),
      ]}
      remove="Delete"
      note="is in no job that starts from now on."
    />
  );
}

interface Props<Item> {
  readonly title: string;
  readonly path: string;
  readonly fields: readonly Described[];
  readonly asked: (given: Given) => Asked;
  /** Its id, its name, and what is known of it. */
  readonly row: (item: Item) => readonly [id: string, name: string, about: string];
  /** Why it is over, so that it cannot be removed any more. */
  readonly over?: (item: Item) => string | null;
  readonly remove: string;
  /** What follows when it is removed: the rest of a sentence that begins with its name. */
  readonly note: string;
}

function Managed<Item>({ title, path, fields, asked, row, over, remove, note }: Props<Item>) {
  const list = useList<Item>(path);
  const { send, ...action } = useAction();
  const [made, setMade] = useState<string | null>(null);
  return (
    <section class="panel" aria-label={title}>
      <h2>{title}</h2>
      <Form
        {...action}
        class="row in-line"
        submit="Add"
        onSubmit={async (given) => {
          const found = await send<{ key?: string } | undefined>(...asked(given));
          if (found === null) return false;
          setMade(found?.key ?? null);
          list.reload();
          return true;
        }}
      >
        <Fields of={fields} />
      </Form>
      {made !== null && (
        <div class="notices" role="status">
          <p>The new key. It is shown now and never again:</p>
          <p>
            <code class="secret">{made}</code>
          </p>
          <button type="button" onClick={() => setMade(null)}>
            I have it
          </button>
        </div>
      )}
      <List list={list} empty={<p>None yet.</p>}>
        {(items) => (
          <ul class="rows">
            {items.map((item) => {
              const [id, name, about] = row(item);
              const why = over?.(item) ?? null;
              return (
                <li key={id}>
                  <Inline as="strong" text={name} length={80} />
                  <Inline as="span" class="quiet" text={about} length={200} />
                  {why !== null ? (
                    <span class="warn">{why}</span>
                  ) : (
                    <RequestButton
                      label={remove}
                      title={`${remove}: ${title.toLowerCase()}`}
                      about={name}
                      submit={remove}
                      asked={() => ["DELETE", `${path}/${encodeURIComponent(id)}`]}
                      onDone={list.reload}
                    >
                      <p>
                        <Inline text={name} length={120} /> {note}
                      </p>
                    </RequestButton>
                  )}
                </li>
              );
            })}
          </ul>
        )}
      </List>
    </section>
  );
}
