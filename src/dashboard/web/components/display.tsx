import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { approximate, clock, date, dateTime, relative, utc } from "../format.ts";
import { retryFailed } from "../resource.ts";

interface PageHeadProps {
  readonly title: string;
  /** Section of the page, for the window title. */
  readonly section?: string;
  readonly children?: ComponentChildren;
}

/** The heading of a page, with its actions. */
export function PageHead({ title, section, children }: PageHeadProps) {
  useEffect(() => {
    document.title = `${section === undefined ? "" : `${section} · `}${title} · Model gateway`;
  }, [title, section]);
  return (
    <header class="page-head">
      <h1>{title}</h1>
      {children !== undefined && <div class="actions">{children}</div>}
    </header>
  );
}

interface PanelProps {
  readonly title?: string;
  readonly aside?: ComponentChildren;
  readonly children: ComponentChildren;
  readonly isFlush?: boolean;
}

export function Panel({ title, aside, children, isFlush = false }: PanelProps) {
  return (
    <section class={isFlush ? "panel flush" : "panel"} aria-label={title}>
      {(title !== undefined || aside !== undefined) && (
        <header>
          {title !== undefined && <h2>{title}</h2>}
          {aside}
        </header>
      )}
      {children}
    </section>
  );
}

interface FigureProps {
  readonly label: string;
  /** The figure as text. Undefined while it is loading. */
  readonly value: string | undefined;
  readonly note?: ComponentChildren;
}

/** One figure with its label. */
export function Figure({ label, value, note }: FigureProps) {
  return (
    <div class="figure">
      <dt>{label}</dt>
      <dd>
        <span class="value">{value ?? <Skeleton />}</span>
        {note !== undefined && <span class="note">{note}</span>}
      </dd>
    </div>
  );
}

export function Figures({ children }: { readonly children: ComponentChildren }) {
  return <dl class="figures">{children}</dl>;
}

export function Skeleton() {
  return <span class="skeleton">&nbsp;</span>;
}

type Tone = "neutral" | "good" | "warn" | "bad";

export function Badge({
  tone = "neutral",
  children,
}: {
  tone?: Tone;
  children: ComponentChildren;
}) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

interface NoticeProps {
  readonly tone?: Tone;
  readonly children: ComponentChildren;
}

/** A notice. Screen readers announce it if it is an error. */
export function Notice({ tone = "neutral", children }: NoticeProps) {
  return (
    <div class={`notice ${tone}`} role={tone === "bad" ? "alert" : undefined}>
      {children}
    </div>
  );
}

/** The reason why a part of the page could not be loaded, with a button that loads it again. */
export function LoadFailure({ message }: { readonly message: string }) {
  return (
    <Notice tone="bad">
      {message}{" "}
      <button type="button" class="link" onClick={retryFailed}>
        Try again
      </button>
    </Notice>
  );
}

interface EmptyProps {
  readonly title: string;
  readonly children?: ComponentChildren;
}

/** An empty state, with the next step. */
export function Empty({ title, children }: EmptyProps) {
  return (
    <div class="empty">
      <p class="title">{title}</p>
      {children}
    </div>
  );
}

interface FactProps {
  readonly name: string;
  /** The content. If it is null, false or empty, the name is omitted too. */
  readonly value: ComponentChildren;
}

/** A name with its value, for a `<dl class="facts">`. */
export function Fact({ name, value }: FactProps) {
  if (value === null || value === false || value === "") return null;
  return (
    <>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </>
  );
}

interface ShortIdProps {
  readonly id: string;
  /** Smaller, for an id below a name. */
  readonly isSub?: boolean;
}

/** A shortened id. Its tooltip is the full id. */
export function ShortId({ id, isSub = false }: ShortIdProps) {
  return (
    <span class={isSub ? "sub code short-id" : "code short-id"} title={id}>
      {id}
    </span>
  );
}

const MINUTE_MS = 60_000;

interface TimeProps {
  readonly iso: string | null;
  readonly form?: "relative" | "exact" | "date" | "clock" | "approximate";
  /** Text if there is no time. */
  readonly otherwise?: string;
}

/** A time in the viewer's time zone. Its tooltip is the time in UTC. */
export function Time({ iso, form = "relative", otherwise = "—" }: TimeProps) {
  const [nowMs, setNowMs] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNowMs(Date.now()), MINUTE_MS);
    return () => clearInterval(timer);
  }, []);
  if (iso === null) return <span class="quiet">{otherwise}</span>;
  const shown = {
    relative: (at: string) => relative(at, Math.max(nowMs, Date.now())),
    exact: dateTime,
    date,
    clock,
    approximate,
  };
  return (
    <time dateTime={iso} title={utc(iso)}>
      {shown[form](iso)}
    </time>
  );
}

interface MeterProps {
  readonly label: string;
  readonly share: number;
  readonly text: string;
  /** The color. Absent: it shows how much of a limit is used. */
  readonly tone?: "neutral" | "good" | "warn" | "bad";
}

/** A share as a bar, such as the used share of a limit. */
export function Meter({
  label,
  share,
  text,
  tone = share >= 1 ? "bad" : share >= 0.8 ? "warn" : "good",
}: MeterProps) {
  return (
    <div class="meter">
      <span>{text}</span>
      <progress class={tone} max={1} value={Math.min(share, 1)} aria-label={label} />
    </div>
  );
}
