/** Parts of a view, each with its address. */

import { Tabs } from "../../parts/tabs";
import { type ServiceView, viewAddress } from "../place";

interface Props {
  readonly label: string;
  readonly view: ServiceView;
  readonly names: readonly string[];
  readonly current: string;
}

export function Filters({ label, view, names, current }: Props) {
  const address = (name: string) => viewAddress(view, { show: name });
  const views = names.map((name) => [address(name), name] as const);
  return <Tabs class="row filters" label={label} views={views} current={address(current)} />;
}
