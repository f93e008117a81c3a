/** Deletes something for good, once that was confirmed. */

import { RequestButton } from "../../parts/action";

interface Props {
  /** As `the job`. */
  readonly what: string;
  /** The name of what is deleted, if several are shown. */
  readonly about?: string;
  readonly path: string;
  readonly note: string;
  /** The label of a second button, which deletes with `force`. */
  readonly forced?: string;
  readonly onDone: () => void;
}

export function DeleteButton({ what, about = what, path, note, forced, onDone }: Props) {
  return (
    <RequestButton
      label="Delete"
      title={`Delete ${what}`}
      about={about}
      submit="Delete"
      others={forced === undefined ? {} : { force: forced }}
      asked={(_, pressed) => ["DELETE", pressed === "force" ? `${path}?force=true` : path]}
      onDone={onDone}
    >
      <p>{note} This cannot be undone.</p>
    </RequestButton>
  );
}
