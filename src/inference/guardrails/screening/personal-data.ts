import {
  findAddresses,
  findCards,
  findEmails,
  findIbans,
  findPhones,
  MAX_EMAIL,
} from "./contact-data.ts";
import type { Detector, Found, Span } from "./detector.ts";
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

/** What a rule on personal data may look for. */
export const ENTITIES: readonly string[] = [...FINDERS.keys()];

/** All but addresses of mail have a digit at most so far from their beginning, */
const MAX_BEFORE_DIGIT = 8;
/** and no more characters than this; the longest are an IBAN with a divider behind each character, and a phone. */
const MAX_NUMBER = 80;
const NO_SPACES = /\S{1,512}$/;

/** Finds what identifies people, by form and check digits. */
export class PersonalData implements Detector {
  readonly cost = 1;
  readonly #finders: readonly (readonly [label: string, find: Finder])[];
  readonly #findsEmails: boolean;

  /** @param entities all of them where it is undefined */
  constructor(entities: readonly string[] = ENTITIES) {
    this.#finders = entities
      .filter((entity) => entity !== "email")
      .map((entity) => [`[${entity.toUpperCase()}]`, FINDERS.get(entity)!]);
    this.#findsEmails = entities.includes("email");
  }

  find(text: string, from: number): Found[] {
    const found: Found[] = [];
    const add = (label: string, spans: readonly Span[]) => {
      for (const { start, end } of spans) found.push({ start, end, label });
    };
    if (this.#findsEmails) add("[EMAIL]", findEmails(text, from));
    // What follows costs several passes, and is not needed for most texts.
    if (this.#finders.length === 0 || firstDigit(text, from) < 0) return found;
    for (const [label, find] of this.#finders) add(label, find(text, from));
    return found;
  }

  heldFrom(text: string): number {
    const { length } = text;
    const recent = Math.max(0, length - MAX_NUMBER);
    const digit = firstDigit(text, recent);
    const ofNumber = (digit < 0 ? length : digit) - MAX_BEFORE_DIGIT;
    const word = NO_SPACES.exec(text.slice(-MAX_EMAIL))?.[0].length ?? 0;
    return Math.max(0, Math.min(ofNumber, length - word));
  }
}

function firstDigit(text: string, from: number): number {
  for (let at = from; at < text.length; at++) {
    const code = text.charCodeAt(at);
    // An address of version 6 may begin with a colon or a letter.
    if ((code >= 48 && code <= 57) || code === 58) return at;
  }
  return -1;
}
