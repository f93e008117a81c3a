/** The views of a run, for the page of a run and that of the service. */

import type { FunctionComponent } from "preact";
import type { ViewName } from "../route";
import type { View } from "../state/view";
import { NowView } from "./now";
import { ProgressView } from "./progress";
import { ReflectionView } from "./reflection";
import { ResultView } from "./result";
import { RowsView } from "./rows";
import { TextView } from "./text";
import { TreeView } from "./tree";

export interface ViewProps {
  readonly view: View;
  readonly params: URLSearchParams;
  /** The beginning of the addresses of this run's details. */
  readonly api: string;
}

const VIEWS: Record<Exclude<ViewName, "runs">, FunctionComponent<ViewProps>> = {
  now: NowView,
  result: ResultView,
  progress: ProgressView,
  tree: TreeView,
  rows: RowsView,
  text: TextView,
  reflection: ReflectionView,
};

export function RunView({ name, ...props }: ViewProps & { name: Exclude<ViewName, "runs"> }) {
  const Shown = VIEWS[name];
  return <Shown {...props} />;
}
