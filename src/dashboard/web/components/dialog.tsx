import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { ApiError, type Use } from "../api.ts";
import { titled } from "../format.ts";
import { mayChange, type Right } from "../rights.ts";
import { Button, type FieldFault, FormFault, OutsideLink } from "./controls.tsx";
import { Notice } from "./display.tsx";

interface DialogProps {
  readonly title: string;
  readonly children: ComponentChildren;
  onClose(): void;
}

const FIRST_CONTROL = "form :is(input, select, textarea), form footer button";

/** A modal dialog. It traps the focus and closes with Escape, like the platform's dialogs. */
export function Dialog({ title, children, onClose }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const shown = dialog.current!;
    const opener = document.activeElement;
    shown.showModal();
    // Moves the focus from the close button, the browser's default, to the first field. In a confirmation
    // that is "Cancel".
    shown.querySelector<HTMLElement>(FIRST_CONTROL)?.focus();
    return () => {
      shown.close();
      if (opener instanceof HTMLElement) opener.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <header>
        <h2 id={id}>{title}</h2>
        <Button variant="quiet" label="Close" onClick={onClose}>
          ✕
        </Button>
      </header>
      {children}
    </dialog>
  );
}

interface FormProps {
  readonly submit: string;
  readonly children: ComponentChildren;
  readonly isDanger?: boolean;
  /** Disables the submit button while the form is incomplete. */
  readonly isDisabled?: boolean;
  /** The right to the change that the form makes. A role that may not change it sees a reason in place of the submit button. */
  readonly needs?: Right;
  /** Label of the cancel button. "Cancel" by default. */
  readonly cancel?: string;
  onCancel?(): void;
  /** The form shows the error with which it rejects. */
  onSubmit(): Promise<unknown>;
}

/** A form with a submit button, which is busy until the submission ends. */
export function Form({
  submit,
  children,
  isDanger = false,
  isDisabled = false,
  cancel = "Cancel",
  needs,
  onCancel,
  onSubmit,
}: FormProps) {
  const [isBusy, setBusy] = useState(false);
  const [fault, setFault] = useState<unknown>();
  const [fieldFault, setFieldFault] = useState<FieldFault>();
  const form = useRef<HTMLFormElement>(null);
  const send = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setFault(undefined);
    setFieldFault(undefined);
    try {
      await onSubmit();
    } catch (error) {
      const control = form.current && rejectedControl(form.current, error);
      if (control) setFieldFault({ param: control.dataset.param!, message: messageOf(error) });
      else setFault(error);
      control?.focus();
    } finally {
      setBusy(false);
    }
  };
  return (
    <form ref={form} onSubmit={(event) => void send(event)}>
      <FormFault.Provider value={fieldFault}>{children}</FormFault.Provider>
      {fault !== undefined && (
        <Notice tone="bad">
          <Fault error={fault} />
        </Notice>
      )}
      {needs !== undefined && !mayChange(needs) ? (
        <p class="hint">Your role cannot change this.</p>
      ) : (
        <footer>
          {onCancel && <Button onClick={onCancel}>{cancel}</Button>}
          <Button
            type="submit"
            variant={isDanger ? "danger" : "primary"}
            isBusy={isBusy}
            isDisabled={isDisabled}
          >
            {submit}
          </Button>
        </footer>
      )}
    </form>
  );
}

/** Returns the control of a form that states what an error rejects. A control states the parts of its field too. */
function rejectedControl(form: HTMLFormElement, error: unknown): HTMLElement | undefined {
  const param = error instanceof ApiError && error.usedBy.length === 0 ? error.param : null;
  if (param === null) return undefined;
  const controls = [...form.querySelectorAll<HTMLElement>("[data-param]")];
  return (
    controls.find(({ dataset }) => dataset.param === param) ??
    controls.find(
      ({ dataset }) =>
        /^[.[]/.test(param.slice(dataset.param!.length)) && param.startsWith(dataset.param!),
    )
  );
}

/** The message of an error. A payment page in the message becomes a link, and users of an object a list. */
export function Fault({ error }: { readonly error: unknown }) {
  if (error instanceof ApiError && error.usedBy.length > 0) return <Uses uses={error.usedBy} />;
  const message = messageOf(error);
  const page = error instanceof ApiError ? error.payment.page : undefined;
  if (page === undefined || !message.includes(page)) return <>{message}</>;
  const index = message.indexOf(page);
  return (
    <>
      {message.slice(0, index)}
      <OutsideLink href={page}>the payment page</OutsideLink>
      {message.slice(index + page.length)}
    </>
  );
}

/** Work in progress, which ends by itself. Other users have to be changed or deleted. */
const RUNNING: readonly string[] = ["batch", "fine_tuning_job"];
const USE_TITLES: Readonly<Record<string, string>> = {
  fine_tuning_job: "Fine-tuning job",
  tuned_model: "Fine-tuned model",
};

function Uses({ uses }: { readonly uses: readonly Use[] }) {
  return (
    <>
      <p>It cannot be deleted while it is in use:</p>
      <ul class="plain">
        {uses.map(({ type, id }) => (
          <li key={`${type} ${id}`}>
            {USE_TITLES[type] ?? titled(type)} <b>{id}</b>
            {RUNNING.includes(type) && ", which has not ended"}
          </li>
        ))}
      </ul>
    </>
  );
}

export function messageOf(error: unknown): string {
  return error instanceof ApiError ? error.message : `Something went wrong: ${String(error)}`;
}

interface ConfirmProps {
  readonly title: string;
  readonly action: string;
  readonly children: ComponentChildren;
  onClose(): void;
  onConfirm(): Promise<unknown>;
}

/** Asks for confirmation of an action that cannot be undone. */
export function Confirm({ title, action, children, onClose, onConfirm }: ConfirmProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      <Form submit={action} isDanger onCancel={onClose} onSubmit={onConfirm}>
        <p>{children}</p>
      </Form>
    </Dialog>
  );
}

interface ToastNote {
  readonly id: number;
  readonly text: string;
  readonly isFault: boolean;
}

const TOAST_MS = 5_000;
const notes = signal<readonly ToastNote[]>([]);
let lastNote = 0;

/** Shows a message for some seconds. */
export function toast(text: string, isFault = false): void {
  const id = ++lastNote;
  notes.value = [...notes.value, { id, text, isFault }];
  setTimeout(() => {
    notes.value = notes.value.filter((note) => note.id !== id);
  }, TOAST_MS);
}

/** Runs an action and reports success or the error in a toast. */
export async function perform(done: string, action: () => Promise<unknown>): Promise<void> {
  try {
    await action();
    toast(done);
  } catch (error) {
    toast(messageOf(error), true);
  }
}

export function Toasts() {
  return (
    <div class="toasts" role="status">
      {notes.value.map(({ id, text, isFault }) => (
        <p key={id} class={isFault ? "bad" : ""}>
          {text}
        </p>
      ))}
    </div>
  );
}
