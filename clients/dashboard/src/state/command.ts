/** Commands about the run of the page, made from the one that shows it. */

import type { CommandHint } from "../generated/events";

const SHOW = / show (\S+)/;

/** Return a command with the run and the store of that which shows the run; undefined if there is none. */
export function sameRun(name: string, commands: readonly CommandHint[], flags = ""): string | undefined {
  const shown = commands.find(({ command }) => SHOW.test(command));
  return shown?.command.replace(SHOW, (_, run) => ` ${name} ${run}${flags && ` ${flags}`}`);
}
