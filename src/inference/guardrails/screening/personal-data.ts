import {
  findAddresses,
  findCards,
  findEmails,
  findIbans,
  findPhones,
  MAX_EMAIL,
} from "./contact-data.ts";
import type { Detector, LabelledSpan, Span } from "./detector.ts";
import { findNumbers, NATIONAL_IDS } from "./national-ids.ts";

type Finder = (text: string, from: number) => Span[];

const FINDERS: ReadonlyMap<string, Finder> = new Map<string, Finder>([
  ["email", findEmails],
  ["phone", findPhones],
  ["credit_card", findCards],
  ["iban", findIbans],
  ["ip_address", findAddresses],
  ...NATIONAL_IDS.map((kind): [string, Finder] => [
    kind.entity,
    (text, from) => findNumbers(kind, text, from),
  ]),
]);

/** The kinds of personal data that a rule can detect. */
export const ENTITIES: readonly string[] = [...FINDERS.keys()];

/**
 * Maximum distance between the start of a match and its first digit, for all kinds except email addresses.
 */
const MAX_BEFORE_DIGIT = 8;
/**
 * Maximum length of these matches, in characters. The longest are an IBAN with a divider after each
 * character, and a phone number.
 */
const MAX_NUMBER = 80;
const NO_SPACES = /\S{1,512}$/;

/** Detects personal data by format and check digits. */
export class PersonalData implements Detector {
  readonly cost = 1;
  readonly #finders: readonly (readonly [label: string, find: Finder])[];
  readonly #findsEmails: boolean;

  /** @param entities the kinds of data to detect; default: all */
  constructor(entities: readonly string[] = ENTITIES) {
    this.#finders = entities
      .filter((entity) => entity !== "email")
      .map((entity) => [`[${entity.toUpperCase()}]`, FINDERS.get(entity)!]);
    this.#findsEmails = entities.includes("email");
  }

  find(text: string, from: number): LabelledSpan[] {
    const all: LabelledSpan[] = [];
    const add = (label: string, spans: readonly Span[]) => {
      for (const { start, end } of spans) all.push({ start, end, label });
    };
    if (this.#findsEmails) add("[EMAIL]", findEmails(text, from));
    // The other searches need several passes, and most texts contain no digit.
    if (this.#finders.length === 0 || firstDigit(text, from) < 0) return all;
    for (const [label, find] of this.#finders) add(label, find(text, from));
    return all;
  }

  heldFrom(text: string): number {
    const { length } = text;
    const recent = Math.max(0, length - MAX_NUMBER);
    const digit = firstDigit(text, recent);
    const numberFrom = (digit < 0 ? length : digit) - MAX_BEFORE_DIGIT;
    const word = NO_SPACES.exec(text.slice(-MAX_EMAIL))?.[0].length ?? 0;
    return Math.max(0, Math.min(numberFrom, length - word));
  }
}

function firstDigit(text: string, from: number): number {
  for (let at = from; at < text.length; at++) {
    const code = text.charCodeAt(at);
    // An IPv6 address can begin with a colon or a letter.
    if ((code >= 48 && code <= 57) || code === 58) return at;
  }
  return -1;
}
