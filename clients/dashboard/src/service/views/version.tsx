/** One version: its score and certificate, where it is from, its texts and its code against its parent. */

import { useMemo } from "preact/hooks";
import { useLoaded } from "../../loading";
import { Badge, Verdict } from "../../parts/badge";
import { Facts } from "../../parts/facts";
import { score, signed, time } from "../../parts/format";
import { Shown } from "../../parts/shown";
import { Block, Compared, Inline } from "../../parts/text";
import { compare } from "../../text/compare";
import { programName } from "../parts/names";
import { VersionControls } from "../parts/version-controls";
import { jobAddress, viewAddress } from "../place";
import type { Version } from "../schema";

export function VersionView({ id }: { id: string }) {
  const loaded = useLoaded<Version>(`/program/${encodeURIComponent(id)}`);
  return (
    <Shown loaded={loaded}>
      {(version) => (
        <>
          <div class="row view-title">
            <Inline as="h1" text={programName(version.line, version.repo_url)} length={80} />
            {version.active && <Badge text="active" />}
            <Verdict version={version} />
          </div>
          <VersionControls version={version} onChange={loaded.reload} />
          <About version={version} />
          <CertificatePanel version={version} />
          <Texts version={version} />
          {version.diff !== null && (
            <section class="panel">
              <h2>Change of the code</h2>
              <Block text={version.diff} label="Change of the code" />
            </section>
          )}
          {version.program_json !== null && (
            <section class="panel">
              <h2>The saved program</h2>
              <Block text={JSON.stringify(version.program_json, null, 2)} label="The saved program" />
            </section>
          )}
          <Promotions version={version} />
        </>
      )}
    </Shown>
  );
}

function About({ version }: { version: Version }) {
  const { score: best, seed_score: seed, parents } = version;
  return (
    <section class="panel">
      <h2>The version</h2>
      <Facts
        facts={[
          ["id", <Commit key="id" id={version.program_id} />],
          [
            "score",
            <span key="score">
              {score(seed)} {"\u2192"} <strong>{score(best)}</strong>
              {best !== null && seed !== null && ` (${signed(best - seed)})`}
            </span>,
          ],
          [
            "made",
            <span key="made">
              {time(version.created_at)} by{" "}
              {version.job_id.startsWith("step_") ? (
                <a href={viewAddress("work", { step: version.job_id })}>its step</a>
              ) : (
                <a href={jobAddress(version.job_id, "result")}>its job</a>
              )}
            </span>,
          ],
          ["repository", version.repo_url],
          [
            "parents",
            parents.length === 0
              ? "none: it was made from the repository as it is"
              : parents.map((parent, at) => (
                  <span key={parent}>
                    {at > 0 && ", "}
                    <a href={viewAddress("version", { id: parent })}>{parent}</a>
                  </span>
                )),
          ],
          ["made from commit", version.base_commit && <Commit key="base" id={version.base_commit} />],
          ["its commit", version.commit && <Commit key="own" id={version.commit} branch={version.branch} />],
        ]}
      />
    </section>
  );
}

function Commit({ id, branch = null }: { id: string; branch?: string | null }) {
  return (
    <>
      <span class="mono">{id}</span>
      {branch !== null && (
        <>
          {" "}
          on <Inline text={branch} length={120} />
        </>
      )}
    </>
  );
}

function CertificatePanel({ version: { certificate } }: { version: Version }) {
  return (
    <section class="panel">
      <h2>Is the gain real?</h2>
      {certificate === null ? (
        <p>No certificate: the job had no test rows, or its record does not permit one.</p>
      ) : (
        <>
          <Inline as="p" text={String(certificate.statement ?? certificate.verdict ?? "")} length={2_000} />
          <details>
            <summary>The whole certificate</summary>
            <Block text={JSON.stringify(certificate, null, 2)} label="The whole certificate" />
          </details>
        </>
      )}
    </section>
  );
}

function Texts({ version }: { version: Version }) {
  const parent = version.parents[0] ?? null;
  const before = useLoaded<Version>(parent === null ? null : `/program/${encodeURIComponent(parent)}`).value;
  return (
    <section class="panel">
      <h2>Texts</h2>
      {before !== null && (
        <p class="quiet">
          <ins>Underlined</ins>: words that <a href={viewAddress("version", { id: before.program_id })}>its parent</a>{" "}
          lacks; <del>struck through</del>: words of the parent that it lacks.
        </p>
      )}
      {parent === null && (
        <p class="quiet">
          <a href={jobAddress(version.job_id, "text")}>The job</a> shows them against the seed.
        </p>
      )}
      {Object.entries(version.texts).map(([component, text]) => (
        <section key={component}>
          <Inline as="h3" text={component} length={200} />
          <Text text={text} before={before?.texts[component] ?? null} label={component} />
        </section>
      ))}
    </section>
  );
}

function Text({ text, before, label }: { text: string; before: string | null; label: string }) {
  const pieces = useMemo(() => (before === null ? null : compare(before, text)), [before, text]);
  return pieces === null ? <Block text={text} label={label} /> : <Compared pieces={pieces} label={label} />;
}

function Promotions({ version }: { version: Version }) {
  if (version.promotions.length === 0) return null;
  return (
    <section class="panel">
      <h2>Promotions</h2>
      <ul class="rows">
        {[...version.promotions].reverse().map((each) => (
          <li key={each.promotion_id}>
            <span>{time(each.created_at)}</span>
            <span>{each.rolled_back ? "became active by a rollback" : "promoted"}</span>
            <span class="quiet">
              by <Inline text={each.actor_name} length={80} />
            </span>
            {each.forced !== null && (
              <span class="warn">
                not certified; reason: <Inline text={each.forced} length={400} />
              </span>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
