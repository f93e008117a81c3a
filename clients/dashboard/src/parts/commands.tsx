/** Commands that a user may type next, and what they do. */

import type { CommandHint } from "../generated/events";
import { Inline } from "./text";

export function Commands({ commands }: { commands: readonly CommandHint[] }) {
  if (commands.length === 0) return null;
  return (
    <ul class="commands">
      {commands.map(({ command, what }) => (
        <li key={command}>
          <Inline as="code" text={command} length={400} /> <Inline as="span" class="quiet" text={what} length={200} />
        </li>
      ))}
    </ul>
  );
}
