import { allMatches, type Span } from "./detector.ts";

/** The format of one kind of number, and the check that distinguishes it from other numbers. */
export interface NumberKind {
  readonly entity: string;
  /** A global expression for one way of writing the number, with no letter or digit next to it. */
  readonly written: RegExp;
  /** Returns true if the digits and letters, without dividers, are a valid number. */
  isValid(compact: string): boolean;
  /**
   * For numbers with a weak check: returns false if this way of writing is distinctive enough. Otherwise one
   * of the words must precede the number.
   */
  readonly needsWord?: (written: string) => boolean;
  readonly words?: RegExp;
}

/** The largest distance between a number and a word that precedes it, in characters. */
export const MAX_WORD_DISTANCE = 48;

const DIVIDERS = /[ .\-/]/g;

export function findNumbers(kind: NumberKind, text: string, from: number): Span[] {
  const spans: Span[] = [];
  for (const match of allMatches(kind.written, text, from)) {
    const [written] = match;
    const start = match.index;
    if (!kind.isValid(written.replace(DIVIDERS, "").toUpperCase())) continue;
    if (kind.needsWord?.(written) === true) {
      const before = text.slice(Math.max(0, start - MAX_WORD_DISTANCE), start);
      if (kind.words?.test(before) !== true) continue;
    }
    spans.push({ start, end: start + written.length });
  }
  return spans;
}

const digitsOf = (compact: string): number[] => [...compact].map(Number);

/** Returns true if Luhn's check digit is correct (ISO/IEC 7812-1, annex B). */
export function passesLuhn(compact: string): boolean {
  let sum = 0;
  for (let at = 0; at < compact.length; at++) {
    const digit = compact.charCodeAt(compact.length - 1 - at) - 48;
    const doubled = at % 2 === 1 ? digit * 2 : digit;
    sum += doubled > 9 ? doubled - 9 : doubled;
  }
  return sum % 10 === 0;
}

function weighted(digits: readonly number[], weights: readonly number[]): number {
  return weights.reduce((sum, weight, at) => sum + weight * digits[at]!, 0);
}

const isPlain = (written: string): boolean => !/[ .\-/]/.test(written);
const always = (): boolean => true;

/**
 * US Social Security numbers, without areas, groups and serials that are never issued (SSA, POMS RM
 * 10201.035).
 */
const usSsn: NumberKind = {
  entity: "us_ssn",
  written: /(?<![\w.-])\d{3}([- ]?)\d{2}\1\d{4}(?![\w]|[.-]\d)/g,
  isValid: (compact) => /^(?!000|666|9)\d{3}(?!00)\d{2}(?!0000)\d{4}$/.test(compact),
  needsWord: (written) => !written.includes("-"),
  words: /\b(?:ssn|social security|social-security)\b/i,
};

/** UK National Insurance numbers, with valid prefixes (HMRC, NIM39110). */
const ukNino: NumberKind = {
  entity: "uk_nino",
  written:
    /(?<![A-Za-z0-9])[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} ?[A-D](?![A-Za-z0-9])/gi,
  isValid: (compact) => !/^(?:BG|GB|KN|NK|NT|TN|ZZ)/.test(compact),
};

/** German Steueridentifikationsnummern (§ 139b AO): one digit repeats, and ISO 7064, MOD 11,10. */
const deTaxId: NumberKind = {
  entity: "de_tax_id",
  written: /(?<![\w.,-])[1-9]\d([ ]?)\d{3}\1\d{3}\1\d{3}(?![\w]|[.,-]\d)/g,
  isValid(compact) {
    const digits = digitsOf(compact);
    const counts = new Array<number>(10).fill(0);
    for (const digit of digits.slice(0, 10)) counts[digit]!++;
    const repeated = counts.filter((count) => count > 1);
    if (repeated.length !== 1 || repeated[0]! > 3) return false;
    let product = 10;
    for (const digit of digits.slice(0, 10)) {
      const sum = (digit + product) % 10;
      product = ((sum === 0 ? 10 : sum) * 2) % 11;
    }
    return (11 - product) % 10 === digits[10];
  },
};

/** French numéros de sécurité sociale (INSEE): months, departments, and a key of 97. */
const frNir: NumberKind = {
  entity: "fr_nir",
  written:
    /(?<![\w.,-])[12][ ]?\d{2}[ ]?(?:0[1-9]|1[0-2]|[2-9]\d)[ ]?(?:\d{2}|2[AB])[ ]?\d{3}[ ]?\d{3}[ ]?\d{2}(?![\w]|[.,-]\d)/gi,
  isValid(compact) {
    // Corsica's departments count as 19 and 18.
    const number = compact.slice(0, 13).replace("2A", "19").replace("2B", "18");
    return 97 - (Number(number) % 97) === Number(compact.slice(13));
  },
};

const DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE";

/** Spanish DNI and NIE (Real Decreto 1553/2005): the letter is the number modulo 23. */
const esDni: NumberKind = {
  entity: "es_dni",
  written: /(?<![A-Za-z0-9])(?:\d{8}|[XYZ][ -]?\d{7})[ -]?[A-HJ-NP-TV-Z](?![A-Za-z0-9])/gi,
  isValid(compact) {
    const number = compact.slice(0, 8).replace(/^[XYZ]/, (letter) => String("XYZ".indexOf(letter)));
    return DNI_LETTERS[Number(number) % 23] === compact[8];
  },
};

const ODD_VALUES = [
  1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23,
];
/** Letters replace digits if two people would have the same code. */
const DIGIT = "[\\dLMNP-V]";

/** Italian codici fiscali (DM 23 dicembre 1976): the format, and the last letter. */
const itFiscalCode: NumberKind = {
  entity: "it_fiscal_code",
  written: new RegExp(
    `(?<![A-Za-z0-9])[A-Z]{6}[ ]?${DIGIT}{2}[A-EHLMPRST]${DIGIT}{2}[ ]?[A-Z]${DIGIT}{3}[A-Z](?![A-Za-z0-9])`,
    "gi",
  ),
  isValid(compact) {
    let sum = 0;
    for (let at = 0; at < 15; at++) {
      const code = compact.charCodeAt(at);
      const value = code < 65 ? code - 48 : code - 65;
      sum += at % 2 === 0 ? ODD_VALUES[value]! : value;
    }
    return String.fromCharCode(65 + (sum % 26)) === compact[15];
  },
};

/** Dutch burgerservicenummers: the test of eleven, which every eleventh number passes. */
const nlBsn: NumberKind = {
  entity: "nl_bsn",
  written: /(?<![\w.,-])\d{3,4}[. ]?\d{2}[. ]?\d{2,3}(?![\w]|[.,-]\d)/g,
  isValid(compact) {
    if (compact.length !== 9) return false;
    const sum = weighted(digitsOf(compact), [9, 8, 7, 6, 5, 4, 3, 2, -1]);
    return sum % 11 === 0 && !/^0+$/.test(compact);
  },
  needsWord: always,
  words: /\b(?:bsn|burgerservice|burger service|sofi)/i,
};

const PESEL_CENTURIES: Readonly<Record<number, number>> = { 0: 19, 1: 20, 2: 21, 3: 22, 4: 18 };

/** Polish PESEL (ustawa o ewidencji ludności): a date of birth, and a check digit. */
const plPesel: NumberKind = {
  entity: "pl_pesel",
  written: /(?<![\w.,-])\d{11}(?![\w]|[.,-]\d)/g,
  isValid(compact) {
    const digits = digitsOf(compact);
    const month = Number(compact.slice(2, 4));
    const day = Number(compact.slice(4, 6));
    const century = PESEL_CENTURIES[Math.floor(month / 20)];
    if (century === undefined || month % 20 < 1 || month % 20 > 12 || day < 1 || day > 31) {
      return false;
    }
    const sum = weighted(digits, [1, 3, 7, 9, 1, 3, 7, 9, 1, 3]);
    return (10 - (sum % 10)) % 10 === digits[10];
  },
  needsWord: always,
  words: /\bpesel\b/i,
};

/** Brazilian CPF (Receita Federal): two check digits. */
const brCpf: NumberKind = {
  entity: "br_cpf",
  written: /(?<![\w.,-])\d{3}[.]?\d{3}[.]?\d{3}-?\d{2}(?![\w]|[.,-]\d)/g,
  isValid(compact) {
    const digits = digitsOf(compact);
    if (digits.every((digit) => digit === digits[0])) return false;
    const check = (length: number): number => {
      let sum = 0;
      for (let at = 0; at < length; at++) sum += digits[at]! * (length + 1 - at);
      return ((sum * 10) % 11) % 10;
    };
    return check(9) === digits[9] && check(10) === digits[10];
  },
  needsWord: isPlain,
  words: /\bcpf\b/i,
};

export const NATIONAL_IDS: readonly NumberKind[] = [
  usSsn,
  ukNino,
  deTaxId,
  frNir,
  esDni,
  itFiscalCode,
  nlBsn,
  plPesel,
  brCpf,
];
