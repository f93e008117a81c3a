/** What the tenant has used this month of what it may use; for owners the audit log. */

import type { ComponentChildren } from "preact";
import { useList, useLoaded } from "../../loading";
import { Facts } from "../../parts/facts";
import { count, money, time } from "../../parts/format";
import { List, Shown } from "../../parts/shown";
import { Inline } from "../../parts/text";
import type { Schema } from "../schema";
import { useMayManage } from "../session";

const EVERY_MS = 15_000;

export function UsageView() {
  const loaded = useLoaded<Schema<"UsageView">>("/usage", { everyMs: EVERY_MS });
  const mayManage = useMayManage();
  return (
    <>
      <h1>Usage</h1>
      <Shown loaded={loaded}>{(usage) => <Used usage={usage} />}</Shown>
      {mayManage && <Audit />}
    </>
  );
}

function Used({ usage }: { usage: Schema<"UsageView"> }) {
  const { quotas } = usage;
  return (
    <section class="panel">
      <h2>
        {usage.month} <span class="quiet">(UTC)</span>
      </h2>
      <ul class="quotas">
        <Quota name="Money" used={usage.usd} of={quotas.usd_per_month ?? null} shown={money}>
          {usage.unpriced > 0 && `and ${count(usage.unpriced)} results without a price`}
        </Quota>
        <Quota name="Jobs at once" used={usage.jobs_running} of={quotas.jobs_at_once ?? null} shown={count} />
        <Quota name="Jobs waiting" used={usage.jobs_queued} of={quotas.jobs_queued ?? null} shown={count} />
      </ul>
      <Facts
        facts={[
          ["jobs this month", count(usage.jobs)],
          ["requests this month", count(usage.requests)],
          ["requests a minute", `at most ${count(quotas.requests_per_minute)}`],
          ["sandboxes at once", `at most ${count(quotas.sandboxes)}`],
        ]}
      />
    </section>
  );
}

interface QuotaProps {
  readonly name: string;
  readonly used: number;
  /** null: no limit. */
  readonly of: number | null;
  readonly shown: (value: number) => string;
  readonly children?: ComponentChildren;
}

function Quota({ name, used, of, shown, children }: QuotaProps) {
  return (
    <li>
      <span>
        {name}: <strong>{shown(used)}</strong> {of === null ? "(no limit)" : `of ${shown(of)}`} {children}
      </span>
      {of !== null && of > 0 && <progress value={used} max={of} aria-hidden="true" />}
    </li>
  );
}

function Audit() {
  const list = useList<Schema<"AuditView">>("/audit", EVERY_MS);
  return (
    <section class="panel">
      <h2>Audit log</h2>
      <List list={list} empty={<p>Nothing was written yet.</p>}>
        {(entries) => (
          <ul class="rows">
            {entries.map((entry) => (
              <li key={entry.audit_id}>
                <span>{time(entry.created_at)}</span>
                <Inline as="code" text={entry.action} length={80} />
                <span class={entry.status >= 400 ? "bad" : "quiet"}>
                  {entry.status === 0 ? "outcome not known" : entry.status}
                </span>
                <Inline as="span" class="quiet" text={entry.resource} length={120} /> by{" "}
                <Inline text={entry.actor_name} length={80} />
              </li>
            ))}
          </ul>
        )}
      </List>
    </section>
  );
}
