/** All versions of all programs; one of each program is active. */

import { useList } from "../../loading";
import { Badge, Verdict } from "../../parts/badge";
import { score, time } from "../../parts/format";
import { List } from "../../parts/shown";
import { Inline } from "../../parts/text";
import { programName, repositoryName } from "../parts/names";
import { viewAddress } from "../place";
import type { Schema, VersionSummary } from "../schema";

const EVERY_MS = 15_000;

export function VersionsView() {
  const list = useList<VersionSummary>("/programs", EVERY_MS);
  const active = useList<Schema<"ActiveView">>("/programs/active?limit=200", EVERY_MS);
  const activeIds = new Set((active.value ?? []).map(({ program_id }) => program_id));
  return (
    <>
      <h1>Versions</h1>
      <p class="about">
        A completed job or step makes a version of its program. One version of each program is active: the one that was
        promoted last.
      </p>
      <List list={list} empty={<p>No version yet: the first completed job or step makes one.</p>}>
        {(versions) =>
          [...byLine(versions)].map(([line, those]) => (
            <section key={line} class="panel">
              <h2>
                <Inline text={programName(line, those[0]?.repo_url ?? "")} length={100} />{" "}
                <Inline as="span" class="quiet" text={repositoryName(those[0]?.repo_url ?? "")} length={80} />
              </h2>
              <ul class="rows">
                {those.map((version) => (
                  <li key={version.program_id}>
                    <a href={viewAddress("version", { id: version.program_id })}>{time(version.created_at)}</a>
                    <span>
                      {score(version.seed_score)} {"\u2192"} <strong>{score(version.score)}</strong>
                    </span>
                    <Verdict version={version} />
                    {activeIds.has(version.program_id) && <Badge text="active" />}
                    {version.commit !== null && <span class="quiet">changes code</span>}
                  </li>
                ))}
              </ul>
            </section>
          ))
        }
      </List>
    </>
  );
}

function byLine(versions: readonly VersionSummary[]): Map<string, VersionSummary[]> {
  const found = new Map<string, VersionSummary[]>();
  for (const version of versions) found.set(version.line, [...(found.get(version.line) ?? []), version]);
  return found;
}
