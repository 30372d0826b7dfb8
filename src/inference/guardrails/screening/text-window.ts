import type { Detector, LabelledSpan } from "./detector.ts";
import { plainText, visibleText } from "./plain-text.ts";

/** A compiled rule of a guardrail. */
export interface ScreeningRule {
  /** The guardrail's id. */
  readonly guardrail: string;
  readonly type: RuleType;
  readonly action: "block" | "redact";
  readonly detector: Detector;
}

export type RuleType = "pii" | "pattern" | "injection" | "moderation";

/** A match of a rule, without the text. */
export interface Hit {
  readonly rule: ScreeningRule;
}

/** Text that can be sent: the length of its original, and its screened form. */
export interface Released {
  /** The length of the original text in UTF-16 units. */
  readonly length: number;
  readonly text: string;
}

/** Characters of released text that are retained, for words before a number that identify it. */
const CONTEXT_CHARACTERS = 64;
/** A long window is screened again when this fraction of it (1/8) is new. */
const STEP_PART = 8;

/** Maximum number of withheld characters. Only a flood of invisible characters can reach it. */
const MAX_HELD = 65_536;

interface Match extends LabelledSpan {
  readonly rule: ScreeningRule;
}

/**
 * Screens a text that arrives in pieces, cut anywhere. A character is released when no rule can match a text
 * that includes it, whatever follows. The matches are the same as in the whole text. Rules run on the
 * original text and on its plain form, so that invisible characters and styled letters hide nothing.
 */
export class TextWindow {
  readonly #rules: readonly ScreeningRule[];
  readonly #note: (hit: Hit) => void;
  /** The end of the released text, and the withheld text. */
  #text = "";
  /** The start of the withheld text in `#text`. */
  #base = 0;
  #unread = 0;
  /**
   * The start in `#text` of a redaction that ends right before the withheld text. The redacted match can
   * continue in it.
   */
  #redactedFrom: number | undefined;
  #isBlocked = false;

  /** @param note called for each match */
  constructor(rules: readonly ScreeningRule[], note: (hit: Hit) => void) {
    this.#rules = rules;
    this.#note = note;
  }

  /** True after a blocking rule has matched. Nothing more is released. */
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
    const released = this.#screen(false);
    return this.heldLength > MAX_HELD ? [...released, ...this.#redactHeld()] : released;
  }

  /** Screens the rest, with `text` as the last piece. */
  end(text = ""): Released[] {
    this.#text += text;
    return this.#screen(true);
  }

  get #isRedacted(): boolean {
    return this.#redactedFrom !== undefined;
  }

  #screen(isEnd: boolean): Released[] {
    this.#unread = 0;
    if (this.#isBlocked || this.heldLength === 0) return [];
    const text = this.#text;
    const plain = plainText(text);
    let heldFrom = text.length;
    const matches: Match[] = [];
    const addMatch = (rule: ScreeningRule, found: LabelledSpan, held: number) => {
      const isNew = found.end > this.#base && (found.start >= this.#base || this.#isRedacted);
      if (isNew && found.start < held) matches.push({ ...found, rule });
    };
    for (const rule of this.#rules) {
      const { detector } = rule;
      const held = isEnd ? text.length : detector.heldFrom(text);
      heldFrom = Math.min(heldFrom, held);
      for (const found of detector.find(text, 0)) addMatch(rule, found, held);
      if (plain === undefined) continue;
      const plainHeld = isEnd ? text.length : plain.originalStart(detector.heldFrom(plain.text));
      heldFrom = Math.min(heldFrom, plainHeld);
      for (const found of detector.find(plain.text, 0)) {
        addMatch(rule, { ...found, ...plain.originalSpan(found.start, found.end) }, plainHeld);
      }
    }
    matches.sort((a, b) => a.start - b.start || b.end - a.end);
    return this.#release(matches, Math.max(heldFrom, this.#base));
  }

  /**
   * Redacts the withheld text. A flood of invisible characters cannot be screened in bounded time and must
   * not be sent.
   */
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
      // A match that begins in released text is the rest of a redaction, or it did not match before and is
      // ignored.
      if (end <= at || (start < at && redactedFrom === undefined)) continue;
      this.#note({ rule });
      pass(start);
      released.push({ length: end - at, text: start < at ? "" : label });
      redactedFrom = Math.min(start, redactedFrom ?? start);
      at = end;
    }
    pass(heldFrom);
    const retainedFrom = redactedFrom ?? at;
    const context = contextBefore(text, retainedFrom);
    this.#text = context + text.slice(retainedFrom);
    this.#base = context.length + at - retainedFrom;
    this.#redactedFrom = redactedFrom === undefined ? undefined : context.length;
    return released;
  }
}

/**
 * Returns the last characters before a position. If some of them are invisible, adds the last visible
 * characters before these.
 */
function contextBefore(text: string, position: number): string {
  const nearFrom = Math.max(0, position - CONTEXT_CHARACTERS);
  const near = text.slice(nearFrom, position);
  const missing = CONTEXT_CHARACTERS - visibleText(near).length;
  if (missing <= 0 || nearFrom === 0) return near;
  return visibleText(text.slice(0, nearFrom)).slice(-missing) + near;
}

/** Returns a whole text with its redactions, or undefined if it is blocked. */
export function screenedText(
  text: string,
  rules: readonly ScreeningRule[],
  note: (hit: Hit) => void,
): string | undefined {
  const plain = plainText(text)?.text;
  const blockingRule = rules.find(
    ({ action, detector }) =>
      action === "block" &&
      (detector.isIn?.(text) || (plain !== undefined && detector.isIn?.(plain))),
  );
  if (blockingRule !== undefined) {
    note({ rule: blockingRule });
    return undefined;
  }
  const rest = rules.filter(({ action, detector }) => action !== "block" || !detector.isIn);
  const window = new TextWindow(rest, note);
  const released = window.end(text);
  if (window.isBlocked) return undefined;
  return released.map((piece) => piece.text).join("");
}
