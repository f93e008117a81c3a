/** What needs the reader first: of the run, as the server words it, and of the connection to the server. */

import type { Status } from "../connection";
import type { Notice } from "../generated/events";
import type { View } from "../state/view";
import { Commands } from "./commands";
import { Inline } from "./text";

type Shown = Pick<Notice, "title"> & Partial<Notice>;

export function Notices({ notices }: { notices: readonly Shown[] }) {
  return (
    <>
      {notices.map(({ title, text = [], commands = [], kind = "stopped" }) => (
        <section
          key={kind + title}
          class="notices"
          aria-label={title}
          role={kind === "stopped" || kind === "lost" ? "alert" : undefined}
        >
          <Inline as="h2" text={title} length={600} />
          {text.map((sentence) => (
            <Inline as="p" key={sentence} text={sentence} length={2_000} />
          ))}
          <Commands commands={commands} />
        </section>
      ))}
    </>
  );
}

/** Return what is wrong between the page and the store. */
export function ofConnection({ latest: { run, store } }: View, status: Status): readonly Shown[] {
  const found: Shown[] = [];
  if (status.kind === "refused") found.push({ title: status.message });
  if (status.kind === "deleted" || store?.gone) {
    found.push({
      title:
        run === undefined
          ? "The store has no such run: it was deleted, or its id is another one."
          : "The run was deleted from its store. What is shown is what this page had read.",
    });
  }
  if (status.kind === "lost") {
    found.push({
      title: "The server of this page does not answer; the page asks again by itself.",
      text: [
        "If it has ended, start it again and open the address that it prints. The run itself does not depend on this page.",
      ],
      commands: run?.commands.filter(({ command }) => command.includes(" watch ")) ?? [],
    });
  }
  if (store?.problem) found.push({ title: `The store cannot be read: ${store.problem}` });
  return found;
}
