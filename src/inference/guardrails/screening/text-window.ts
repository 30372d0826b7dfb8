import type { Detector, Found } from "./detector.ts";
import { plainText, visibleText } from "./plain-text.ts";

/** One rule of a guardrail, ready to be used. */
export interface ScreeningRule {
  /** The guardrail's id. */
  readonly guardrail: string;
  readonly type: RuleType;
  readonly action: "block" | "redact";
  readonly detector: Detector;
}

export type RuleType = "pii" | "pattern" | "injection" | "moderation";

/** What a rule has found; never the text itself. */
export interface Hit {
  readonly rule: ScreeningRule;
}

/** Text that may leave: where it stood in what was pushed, and what it is now. */
export interface Released {
  /** How much of what was pushed it stands for. */
  readonly length: number;
  readonly text: string;
}

/** Of what has been released, so much is kept: words before a number that say what it is. */
const CONTEXT_CHARACTERS = 64;
/** Windows of more characters are looked through when so much of them is new. */
const STEP_PART = 8;

/** Characters that are held at most: no rule holds so many visible ones. */
const MAX_HELD = 65_536;

interface Match extends Found {
  readonly rule: ScreeningRule;
}

/**
 * Looks through a text that comes in pieces, cut anywhere. A character is released when no rule can find anything that
 * includes it, whatever follows; the same is found as in the whole text. Rules look at the text as it is, and at its
 * plain form, so that invisible characters and styled letters hide nothing.
 */
export class TextWindow {
  readonly #rules: readonly ScreeningRule[];
  readonly #note: (hit: Hit) => void;
  /** Released before, and what is held. */
  #text = "";
  /** Where in it the held part begins. */
  #base = 0;
  #unread = 0;
  /** Where in it what was redacted right before the held part begins: that may go on in it. */
  #redactedFrom: number | undefined;
  #isBlocked = false;

  /** @param note is called for each thing that is found */
  constructor(rules: readonly ScreeningRule[], note: (hit: Hit) => void) {
    this.#rules = rules;
    this.#note = note;
  }

  /** True from when a rule that blocks has found something: nothing is released any more. */
  get isBlocked(): boolean {
    return this.#isBlocked;
  }

  get heldLength(): number {
    return this.#text.length - this.#base;
  }

  push(text: string): Released[] {
    this.#text += text;
    this.#unread += text.length;
    if (this.#unread * STEP_PART < this.heldLength) return [];
    const released = this.#look(false);
    return this.heldLength > MAX_HELD ? [...released, ...this.#redactHeld()] : released;
  }

  /** Nothing follows `text`. */
  end(text = ""): Released[] {
    this.#text += text;
    return this.#look(true);
  }

  get #isRedacted(): boolean {
    return this.#redactedFrom !== undefined;
  }

  #look(isEnd: boolean): Released[] {
    this.#unread = 0;
    if (this.#isBlocked || this.heldLength === 0) return [];
    const text = this.#text;
    const plain = plainText(text);
    let heldFrom = text.length;
    const matches: Match[] = [];
    const take = (rule: ScreeningRule, found: Found, held: number) => {
      const isNew = found.end > this.#base && (found.start >= this.#base || this.#isRedacted);
      if (isNew && found.start < held) matches.push({ ...found, rule });
    };
    for (const rule of this.#rules) {
      const { detector } = rule;
      const held = isEnd ? text.length : detector.heldFrom(text);
      heldFrom = Math.min(heldFrom, held);
      for (const found of detector.find(text, 0)) take(rule, found, held);
      if (plain === undefined) continue;
      const plainHeld = isEnd ? text.length : plain.originalStart(detector.heldFrom(plain.text));
      heldFrom = Math.min(heldFrom, plainHeld);
      for (const found of detector.find(plain.text, 0)) {
        take(rule, { ...found, ...plain.originalSpan(found.start, found.end) }, plainHeld);
      }
    }
    matches.sort((a, b) => a.start - b.start || b.end - a.end);
    return this.#release(matches, Math.max(heldFrom, this.#base));
  }

  /** What cannot be looked through in bounded time, a flood of invisible characters, must not pass. */
  #redactHeld(): Released[] {
    if (this.#isBlocked) return [];
    const rule = this.#rules.find(({ action }) => action === "block") ?? this.#rules[0]!;
    const [start, end] = [this.#base, this.#text.length];
    return this.#release([{ start, end, label: "[REDACTED]", rule }], end);
  }

  #release(matches: readonly Match[], heldFrom: number): Released[] {
    const blocking = matches.find(({ rule, start }) => rule.action === "block" && start < heldFrom);
    if (blocking !== undefined) {
      this.#note({ rule: blocking.rule });
      this.#isBlocked = true;
      return [];
    }
    const text = this.#text;
    const released: Released[] = [];
    const pass = (to: number) => {
      if (to <= at) return;
      released.push({ length: to - at, text: text.slice(at, to) });
      at = to;
      redactedFrom = undefined;
    };
    let at = this.#base;
    let redactedFrom = this.#redactedFrom;
    for (const { start, end, label, rule } of matches) {
      if (start >= Math.max(heldFrom, at)) break;
      // One that begins in what was released is the rest of something redacted, or was none when it was whole.
      if (end <= at || (start < at && redactedFrom === undefined)) continue;
      this.#note({ rule });
      pass(start);
      released.push({ length: end - at, text: start < at ? "" : label });
      redactedFrom = Math.min(start, redactedFrom ?? start);
      at = end;
    }
    pass(heldFrom);
    const keptFrom = redactedFrom ?? at;
    const context = contextBefore(text, keptFrom);
    this.#text = context + text.slice(keptFrom);
    this.#base = context.length + at - keptFrom;
    this.#redactedFrom = redactedFrom === undefined ? undefined : context.length;
    return released;
  }
}

/** The last characters before a position, and before these the last visible ones, if others are among them. */
function contextBefore(text: string, position: number): string {
  const nearFrom = Math.max(0, position - CONTEXT_CHARACTERS);
  const near = text.slice(nearFrom, position);
  const missing = CONTEXT_CHARACTERS - visibleText(near).length;
  if (missing <= 0 || nearFrom === 0) return near;
  return visibleText(text.slice(0, nearFrom)).slice(-missing) + near;
}

/** A whole text with what is redacted; undefined where it is blocked. */
export function screenedText(
  text: string,
  rules: readonly ScreeningRule[],
  note: (hit: Hit) => void,
): string | undefined {
  const plain = plainText(text)?.text;
  const known = rules.find(
    ({ action, detector }) =>
      action === "block" &&
      (detector.isIn?.(text) || (plain !== undefined && detector.isIn?.(plain))),
  );
  if (known !== undefined) {
    note({ rule: known });
    return undefined;
  }
  const rest = rules.filter(({ action, detector }) => action !== "block" || !detector.isIn);
  const window = new TextWindow(rest, note);
  const released = window.end(text);
  if (window.isBlocked) return undefined;
  return released.map((piece) => piece.text).join("");
}
