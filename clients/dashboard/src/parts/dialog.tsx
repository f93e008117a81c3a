/** A button that opens a dialog. */

import type { ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";

interface Props {
  readonly label: string;
  readonly title: string;
  /** What the button's label lacks to be understood alone, such as the name of the row it is in. */
  readonly about?: string;
  readonly primary?: boolean;
  readonly children: (close: () => void) => ComponentChildren;
}

export function DialogButton({ label, title, about, primary = false, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  const [opened, setOpened] = useState(false);
  const close = () => dialog.current?.close();
  return (
    <>
      <button
        type="button"
        class={primary ? "primary" : undefined}
        aria-haspopup="dialog"
        aria-label={about === undefined ? undefined : `${label}: ${about}`}
        onClick={() => {
          setOpened(true);
          dialog.current?.showModal();
        }}
      >
        {label}
      </button>
      <dialog ref={dialog} aria-labelledby={id} onClose={() => setOpened(false)}>
        <h2 id={id}>{title}</h2>
        {opened && children(close)}
        <button type="button" onClick={close}>
          Close
        </button>
      </dialog>
    </>
  );
}
