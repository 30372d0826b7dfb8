import ipaddr from "ipaddr.js";
import numberingPlans from "libphonenumber-js/metadata.min.json";
import { allMatches, type Span } from "./detector.ts";
import { MAX_WORD_DISTANCE, passesLuhn } from "./national-ids.ts";

const MAX_LOCAL = 64;
const MAX_DOMAIN = 255;
/** The longest email address that is detected. */
export const MAX_EMAIL = MAX_LOCAL + 1 + MAX_DOMAIN;

const LOCAL_PART = /[\p{L}\p{N}_.%+'-]+$/u;
const DOMAIN = /^(?:[\p{L}\p{N}](?:[\p{L}\p{N}-]{0,61}[\p{L}\p{N}])?\.){1,8}\p{L}{2,24}/u;
const EDGES = /^[.'-]+/;

/** Finds email addresses by their @ sign, so that long words without one cost nothing. */
export function findEmails(text: string, from: number): Span[] {
  const spans: Span[] = [];
  for (let at = text.indexOf("@", from); at >= 0; at = text.indexOf("@", at + 1)) {
    const local = LOCAL_PART.exec(text.slice(Math.max(0, at - MAX_LOCAL), at))?.[0];
    const domain = DOMAIN.exec(text.slice(at + 1, at + 1 + MAX_DOMAIN))?.[0];
    const name = local?.replace(EDGES, "");
    if (!name || domain === undefined) continue;
    spans.push({ start: at - name.length, end: at + 1 + domain.length });
  }
  return spans.filter(({ start }) => start >= from);
}

/** First digits and lengths of card numbers, by card network. */
const CARDS: readonly RegExp[] = [
  /^4(?:\d{12}|\d{15}|\d{18})$/,
  /^(?:5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12})$/,
  /^3[47]\d{13}$/,
  /^(?:6011|64[4-9]\d|65\d\d)\d{12}(?:\d{3})?$/,
  /^3(?:0[0-5]|[689]\d)\d{11,13}$/,
  /^35(?:2[89]|[3-8]\d)\d{12}$/,
  /^62\d{14,17}$/,
  /^(?:50|5[6-9]|6[0-9])\d{11,17}$/,
];
const MIN_CARD = 13;
const MAX_CARD = 19;

const DIGIT_GROUP = /\d+/g;
const isDivider = (text: string, at: number): boolean => text[at] === " " || text[at] === "-";

/**
 * Finds card numbers. Cards are written in groups, and other numbers can follow, so each start of a group can
 * be the start of a card.
 */
export function findCards(text: string, from: number): Span[] {
  const spans: Span[] = [];
  DIGIT_GROUP.lastIndex = from;
  for (let group = DIGIT_GROUP.exec(text); group !== null; group = DIGIT_GROUP.exec(text)) {
    const start = group.index;
    const isExcluded =
      text[start] === "1" || isPartOfWord(text, start - 1) || isFraction(text, start);
    if (isExcluded) continue;
    const end = endOfCard(text, start);
    if (end === undefined) continue;
    spans.push({ start, end });
    DIGIT_GROUP.lastIndex = end;
  }
  return spans;
}

const WORD_CHARACTER = /[\p{L}\p{N}_]/u;

/** Returns true if the digits follow a decimal separator. */
function isFraction(text: string, start: number): boolean {
  return /\d[.,]$/.test(text.slice(Math.max(0, start - 2), start));
}

function isPartOfWord(text: string, at: number): boolean {
  const before = text[at];
  return before !== undefined && WORD_CHARACTER.test(before);
}

function endOfCard(text: string, start: number): number | undefined {
  let digits = "";
  let end: number | undefined;
  for (let at = start; at < text.length && digits.length <= MAX_CARD; at++) {
    const code = text.charCodeAt(at);
    if (code >= 48 && code <= 57) {
      digits += text[at];
      continue;
    }
    if (digits.length >= MIN_CARD && isCard(digits) && !isPartOfWord(text, at)) end = at;
    const isGroupNext = isDivider(text, at) && /\d/.test(text[at + 1] ?? "");
    if (!isGroupNext) return end;
  }
  const isWhole = digits.length <= MAX_CARD && digits.length >= MIN_CARD && isCard(digits);
  return isWhole ? text.length : end;
}

function isCard(digits: string): boolean {
  return passesLuhn(digits) && CARDS.some((card) => card.test(digits));
}

/** Lengths by country (ISO 13616, SWIFT's registry). */
const IBAN_LENGTHS: Readonly<Record<string, number>> = Object.fromEntries(
  (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 " +
    "EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 " +
    "KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 " +
    "PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 " +
    "VA22 VG24 XK20 YE30"
  )
    .split(" ")
    .map((entry) => [entry.slice(0, 2), Number(entry.slice(2))]),
);
const IBAN_START = /(?<![\p{L}\p{N}_])[A-Za-z]{2}\d{2}(?=[ -]?[A-Za-z0-9])/gu;

export function findIbans(text: string, from: number): Span[] {
  const spans: Span[] = [];
  for (const { index: start } of allMatches(IBAN_START, text, from)) {
    const length = IBAN_LENGTHS[text.slice(start, start + 2).toUpperCase()];
    const end = length === undefined ? undefined : endOfCharacters(text, start, length);
    if (end !== undefined) spans.push({ start, end });
  }
  return spans;
}

function endOfCharacters(text: string, start: number, count: number): number | undefined {
  let compact = "";
  let at = start;
  for (; compact.length < count; at++) {
    const character = text[at] ?? "";
    if (/[A-Za-z0-9]/.test(character)) compact += character.toUpperCase();
    else if (!isDivider(text, at) || isDivider(text, at - 1)) return undefined;
  }
  return !isPartOfWord(text, at) && remainderOf97(compact) === 1 ? at : undefined;
}

function remainderOf97(compact: string): number {
  let remainder = 0;
  for (const character of compact.slice(4) + compact.slice(0, 4)) {
    const value = Number.parseInt(character, 36);
    remainder = (remainder * (value > 9 ? 100 : 10) + value) % 97;
  }
  return remainder;
}

const IPV4 = /(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d|-\d)/g;
const IPV6 =
  /(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:]{3,39}(?:(?<=:)(?:\d{1,3}\.){3}\d{1,3})?(?![\w:])/g;
const VERSION_BEFORE =
  /(?:\bversion|\bversie|\bwersja|\bv|\brelease|§|\bsection|\bchapter)[ .:]{0,2}$/i;
/** Address ranges that do not identify a host. */
const NO_ADDRESSES: ReadonlySet<string> = new Set(["loopback", "unspecified", "broadcast"]);

export function findAddresses(text: string, from: number): Span[] {
  const spans: Span[] = [];
  for (const expression of [IPV4, IPV6]) {
    for (const match of allMatches(expression, text, from)) {
      const [written] = match;
      if (!ipaddr.isValid(written) || NO_ADDRESSES.has(ipaddr.process(written).range())) continue;
      const before = text.slice(Math.max(0, match.index - 16), match.index);
      if (VERSION_BEFORE.test(before)) continue;
      spans.push({ start: match.index, end: match.index + written.length });
    }
  }
  return spans;
}

/** Calling codes and the format of the numbers after them (ITU-T E.164, from libphonenumber's table). */
const NUMBERS_BY_CODE: ReadonlyMap<string, RegExp> = new Map(
  Object.entries(numberingPlans.country_calling_codes).map(([code, countries]) => {
    const plans = numberingPlans.countries as unknown as Readonly<Record<string, unknown[]>>;
    const forms = countries.map((country) => `(?:${String(plans[country]![2])})`);
    return [code, new RegExp(`^0?(?:${forms.join("|")})$`)];
  }),
);
const MAX_CODE = 3;

const INTERNATIONAL = /(?<![\w+])(?:\+|00)[1-9](?:[ .\-/]?\(?\d\)?){6,15}(?![\w]|[.,-]\d)/g;
const NATIONAL = /(?<![\w+.,-])\(?\d(?:[ .\-/]{0,2}\(?\d\)?){6,12}(?![\w]|[.,-]\d)/g;
const AMERICAN =
  /(?<![\w+.,-])(?:1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[.-])[2-9]\d{2}[ .-]\d{4}(?![\w]|[.,-]\d)/g;
/**
 * National formats: with a zero before the area code, nine digits as in Spain and Poland, as in North
 * America, and as in Brazil.
 */
const NATIONAL_DIGITS = /^(?:0[1-9]\d{7,10}|[4-9]\d{8}|1?[2-9]\d\d[2-9]\d{6}|[1-9]{2}9\d{8})$/;
const PHONE_WORDS =
  /\b(?:tel|phone|call|cell|mobile|fax|whatsapp|sms|text me|ring|contact|reach|telefon|telefoon|handy|mobil|rufnummer|anruf|mobiel|bel|téléphone|telephone|portable|appel|teléfono|móvil|llam|telefono|cellulare|chiam|komórk|zadzwo|celular|telemóvel|ligue)/i;

export function findPhones(text: string, from: number): Span[] {
  const spans: Span[] = [];
  const add = (
    expression: RegExp,
    isPhone: (digits: string) => boolean,
    mayBegin: (text: string, start: number) => boolean = () => true,
  ) => {
    expression.lastIndex = from;
    for (let match = expression.exec(text); match !== null; match = expression.exec(text)) {
      const start = match.index;
      const length = mayBegin(text, start) ? lengthOfPhone(match[0], isPhone) : 0;
      if (length > 0) spans.push({ start, end: start + length });
      expression.lastIndex = start + Math.max(length, 1);
    }
  };
  add(INTERNATIONAL, isInternational);
  add(AMERICAN, () => true);
  add(NATIONAL, (digits) => NATIONAL_DIGITS.test(digits), followsPhoneWord);
  return spans;
}

const NON_DIGITS = /\D/g;
const LAST_GROUP = /[ .\-/]{1,2}[(]?\d+[)]?$/;
const MAX_TRAILING_GROUPS = 3;

/**
 * Returns the length of the phone number at the start of the text, or 0 if there is none. Other numbers can
 * follow, so up to three trailing groups are removed.
 */
function lengthOfPhone(written: string, isPhone: (digits: string) => boolean): number {
  let rest = written;
  for (let left = 0; left <= MAX_TRAILING_GROUPS; left++) {
    if (isPhone(rest.replace(NON_DIGITS, ""))) return rest.length;
    const group = LAST_GROUP.exec(rest)?.[0];
    if (group === undefined) return 0;
    rest = rest.slice(0, -group.length);
  }
  return 0;
}

function isInternational(digits: string): boolean {
  const number = digits.replace(/^00/, "");
  for (let length = 1; length <= MAX_CODE; length++) {
    const form = NUMBERS_BY_CODE.get(number.slice(0, length));
    if (form !== undefined) return form.test(number.slice(length));
  }
  return false;
}

function followsPhoneWord(text: string, start: number): boolean {
  return PHONE_WORDS.test(text.slice(Math.max(0, start - MAX_WORD_DISTANCE), start));
}
