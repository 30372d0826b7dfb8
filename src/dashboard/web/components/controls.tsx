import { type ComponentChildren, createContext } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { mayChange, type Right } from "../rights.ts";
import { hrefOf, navigate } from "../router.ts";

interface ButtonProps {
  readonly children: ComponentChildren;
  /** `link`: a button that opens something, within a text or a table. */
  readonly variant?: "primary" | "plain" | "danger" | "quiet" | "link";
  readonly type?: "button" | "submit";
  readonly isBusy?: boolean;
  readonly isDisabled?: boolean;
  /** Accessible name, if the text does not name the object: "Revoke the key ada". */
  readonly label?: string;
  /** The right to the change that the button makes. A session whose role may not change it does not see the button. */
  readonly needs?: Right;
  onClick?(): void;
}

export function Button({
  children,
  variant = "plain",
  type = "button",
  isBusy = false,
  isDisabled = false,
  label,
  needs,
  onClick,
}: ButtonProps) {
  if (needs !== undefined && !mayChange(needs)) return null;
  return (
    <button
      type={type}
      class={`button ${variant}`}
      disabled={isDisabled || isBusy}
      aria-busy={isBusy}
      aria-label={label}
      onClick={onClick}
    >
      {children}
    </button>
  );
}

interface LinkProps {
  readonly page: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly children: ComponentChildren;
  readonly isCurrent?: boolean;
  readonly class?: string;
  onFollow?(): void;
}

/** A link to a page of the dashboard. Follows it without loading the page from the server. */
export function Link({ page, query, children, isCurrent, class: className, onFollow }: LinkProps) {
  const href = hrefOf(page, query);
  const follow = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    onFollow?.();
    navigate(href);
  };
  return (
    <a href={href} class={className} aria-current={isCurrent ? "page" : undefined} onClick={follow}>
      {children}
    </a>
  );
}

interface OutsideLinkProps {
  readonly href: string;
  readonly children: ComponentChildren;
  readonly class?: string;
}

/** A link to an external page, such as the payment processor's. It opens in a new tab. */
export function OutsideLink({ href, children, class: className }: OutsideLinkProps) {
  // The URL comes from another system, so only web pages can be opened.
  if (!/^https?:\/\//i.test(href)) return <>{children}</>;
  return (
    <a href={href} class={className} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  );
}

/** The field of a form that the gateway rejected, with the reason. */
export interface FieldFault {
  /** The `param` of the control, not of the error: `pricing` for an error in `pricing.prompt`. */
  readonly param: string;
  readonly message: string;
}

export const FormFault = createContext<FieldFault | undefined>(undefined);

/** Returns the reason if the form around a control was rejected because of the control. */
function useFault(param: string | undefined): string | undefined {
  const fault = useContext(FormFault);
  return param !== undefined && fault?.param === param ? fault.message : undefined;
}

interface Rejectable {
  /** The field of the API's request body that the control states. Its errors appear at the control. */
  readonly param?: string | undefined;
}

interface HintProps {
  readonly id: string;
  readonly error: string | undefined;
  readonly children: ComponentChildren;
}

/** The text below a control: its hint, or the error in place of it, which screen readers announce. */
function Hint({ id, error, children }: HintProps) {
  return (
    <p
      id={id}
      class={error === undefined ? "hint" : "hint bad"}
      role={error === undefined ? undefined : "alert"}
    >
      {error ?? children}
    </p>
  );
}

let lastId = 0;

/** Returns an id for an element. Those of Preact's useId repeat when fields appear later. */
const nextId = () => `field-${++lastId}`;

interface FieldProps extends Rejectable {
  readonly label: string;
  readonly value: string;
  readonly type?: "text" | "password" | "number" | "search" | "url" | "date" | "email";
  readonly hint?: string;
  readonly error?: string | undefined;
  readonly placeholder?: string;
  readonly isRequired?: boolean;
  readonly isDisabled?: boolean;
  /** True for a field that takes the focus when it appears. */
  readonly isFocused?: boolean;
  /** Smallest number of characters. */
  readonly minLength?: number;
  readonly inputMode?: "decimal" | "numeric";
  readonly autocomplete?: string;
  /** Shows dots in place of characters. Browsers do not offer to save the text, unlike a password's. */
  readonly isSecret?: boolean;
  /** Suggestions during typing. */
  readonly suggestions?: readonly string[];
  onInput(value: string): void;
}

export function Field({
  label,
  hint,
  error: statedError,
  suggestions,
  param,
  onInput,
  ...input
}: FieldProps) {
  const [id] = useState(nextId);
  const fault = useFault(param);
  const error = statedError ?? fault;
  const described = error !== undefined || hint !== undefined ? `${id}-hint` : undefined;
  const shown = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (input.isFocused) shown.current?.focus();
  }, []);
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        ref={shown}
        id={id}
        class={input.isSecret ? "secret" : undefined}
        type={(input.type ?? "text") as "text"}
        list={suggestions && `${id}-list`}
        value={input.value}
        placeholder={input.placeholder}
        required={input.isRequired}
        minLength={input.minLength}
        disabled={input.isDisabled}
        inputMode={input.inputMode}
        autocomplete={(input.autocomplete ?? "off") as "off"}
        spellcheck={false}
        data-param={param}
        aria-invalid={error !== undefined}
        aria-describedby={described}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      {suggestions && (
        <datalist id={`${id}-list`}>
          {suggestions.map((text) => (
            <option key={text} value={text} />
          ))}
        </datalist>
      )}
      {described !== undefined && (
        <Hint id={described} error={error}>
          {hint}
        </Hint>
      )}
    </div>
  );
}

interface AreaProps extends Rejectable {
  readonly label: string;
  readonly value: string;
  readonly rows?: number;
  readonly placeholder?: string;
  readonly hint?: string;
  readonly error?: string | undefined;
  onInput(value: string): void;
  onKeyDown?(event: KeyboardEvent): void;
}

export function Area({
  label,
  rows = 3,
  hint,
  error: statedError,
  param,
  onInput,
  ...area
}: AreaProps) {
  const [id] = useState(nextId);
  const fault = useFault(param);
  const error = statedError ?? fault;
  const described = error !== undefined || hint !== undefined ? `${id}-hint` : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        rows={rows}
        value={area.value}
        placeholder={area.placeholder}
        data-param={param}
        aria-invalid={error !== undefined}
        aria-describedby={described}
        onInput={(event) => onInput(event.currentTarget.value)}
        onKeyDown={area.onKeyDown}
      />
      {described !== undefined && (
        <Hint id={described} error={error}>
          {hint}
        </Hint>
      )}
    </div>
  );
}

interface ChoiceProps extends Rejectable {
  readonly label: string;
  readonly value: string;
  /** Values with their labels. */
  readonly options: readonly (readonly [value: string, text: string])[];
  readonly isInline?: boolean;
  readonly hint?: string;
  onChange(value: string): void;
}

export function Choice({
  label,
  value,
  options,
  isInline = false,
  hint,
  param,
  onChange,
}: ChoiceProps) {
  const [id] = useState(nextId);
  const error = useFault(param);
  return (
    <div class={isInline ? "field inline" : "field"}>
      <label for={id}>{label}</label>
      <select
        id={id}
        value={value}
        data-param={param}
        aria-invalid={error !== undefined}
        aria-describedby={(error ?? hint) && `${id}-hint`}
        onChange={(event) => onChange(event.currentTarget.value)}
      >
        {options.map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </select>
      {(error ?? hint) && (
        <Hint id={`${id}-hint`} error={error}>
          {hint}
        </Hint>
      )}
    </div>
  );
}

interface CheckProps {
  readonly label: string;
  readonly hint?: string;
  readonly isChecked: boolean;
  readonly isDisabled?: boolean;
  onChange(isChecked: boolean): void;
}

export function Check({ label, hint, isChecked, isDisabled, onChange }: CheckProps) {
  return (
    <label class="check">
      <input
        type="checkbox"
        checked={isChecked}
        disabled={isDisabled}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      {hint === undefined ? (
        label
      ) : (
        <span>
          {label}
          <span class="sub">{hint}</span>
        </span>
      )}
    </label>
  );
}

interface TabsProps {
  readonly label: string;
  readonly tabs: readonly (readonly [id: string, text: string])[];
  readonly current: string;
  onChange(id: string): void;
}

/**
 * A list of tabs. Arrow keys move between them (WAI-ARIA, tabs pattern). The parent renders the content of
 * the current tab below.
 */
export function Tabs({ label, tabs, current, onChange }: TabsProps) {
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const index = tabs.findIndex(([id]) => id === current);
    const next = (index + step + tabs.length) % tabs.length;
    onChange(tabs[next]![0]);
    const list = (event.currentTarget as HTMLElement).children;
    (list[next] as HTMLElement).focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map(([id, text]) => (
        <button
          key={id}
          type="button"
          role="tab"
          aria-selected={id === current}
          tabIndex={id === current ? 0 : -1}
          onClick={() => onChange(id)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

interface CodeProps {
  readonly text: string;
  /** Label of the button, such as "Copy as curl". */
  readonly action: string;
  /** Text next to the button. */
  readonly hint?: ComponentChildren;
}

/** A command or a program with a button to copy it. */
export function Code({ text, action, hint }: CodeProps) {
  const shown = useRef<HTMLPreElement>(null);
  const [isCopied, setCopied] = useState(false);
  useEffect(() => setCopied(false), [text]);
  const copy = async () => {
    // Browsers allow the clipboard on secure origins only. On other origins the text is selected.
    if (navigator.clipboard === undefined) getSelection()?.selectAllChildren(shown.current!);
    else await navigator.clipboard.writeText(text).then(() => setCopied(true));
  };
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the block scrolls, so it has to be focusable */}
      <pre ref={shown} class="block code" tabIndex={0}>
        {text}
      </pre>
      <div class="actions copying">
        <Button onClick={() => void copy()}>{isCopied ? "Copied" : action}</Button>
        {hint && <span class="hint">{hint}</span>}
      </div>
    </>
  );
}

/**
 * A read-only text with a button that copies it. Browsers allow the clipboard on secure origins only. On
 * focus the text is selected.
 */
export function CopyText({ text, label }: { readonly text: string; readonly label: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text);
    setCopied(navigator.clipboard !== undefined);
  };
  return (
    <div class="copy">
      <input
        readOnly
        value={text}
        aria-label={label}
        onFocus={(event) => event.currentTarget.select()}
      />
      <Button label={`Copy ${label}`} onClick={() => void copy()}>
        {isCopied ? "Copied" : "Copy"}
      </Button>
    </div>
  );
}
