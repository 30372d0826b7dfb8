/** A sound of speech: its source, and the resonances of throat and mouth. Frequencies in Hz. */
export interface Phone {
  /** The first three formants. */
  readonly formants: readonly [number, number, number];
  /** Strength of the voice, and of breath through the formants. Each from 0 to 1. */
  readonly voice: number;
  readonly breath: number;
  /** Noise at the teeth or lips: strength from 0 to 1, centre and width in Hz. */
  readonly noise: number;
  readonly noiseHz: number;
  readonly noiseWidthHz: number;
  /** Duration at normal speed. */
  readonly durationMs: number;
}

type Formants = readonly [number, number, number];

const SCHWA: Formants = [500, 1500, 2500];

function vowel(...formants: Formants): Phone {
  return { ...SILENT, formants, voice: 1, durationMs: 95 };
}

function sonorant(voice: number, ...formants: Formants): Phone {
  return { ...SILENT, formants, voice, durationMs: 65 };
}

function fricative(voice: number, noise: number, noiseHz: number, noiseWidthHz: number): Phone {
  return {
    ...SILENT,
    formants: [300, 1600, 2500],
    voice,
    noise,
    noiseHz,
    noiseWidthHz,
    durationMs: 85,
  };
}

const SILENT: Phone = {
  formants: SCHWA,
  voice: 0,
  breath: 0,
  noise: 0,
  noiseHz: 2500,
  noiseWidthHz: 1000,
  durationMs: 60,
};
const CLOSED: Phone = { ...SILENT, durationMs: 45 };
const VOICED_CLOSED: Phone = { ...CLOSED, formants: [200, 1100, 2300], voice: 0.15 };

function stop(closed: Phone, noise: number, noiseHz: number, breath: number): readonly Phone[] {
  const burst = { ...SILENT, noise, noiseHz, noiseWidthHz: 1200, breath, durationMs: 25 };
  return [closed, burst];
}

/** Average formants of a low voice, as in textbooks of phonetics. */
const VOWELS = {
  iy: vowel(280, 2250, 2900),
  ih: vowel(400, 1950, 2550),
  eh: vowel(550, 1800, 2500),
  ae: vowel(680, 1700, 2450),
  aa: vowel(730, 1100, 2450),
  ao: vowel(570, 850, 2400),
  uh: vowel(450, 1050, 2250),
  uw: vowel(310, 880, 2250),
  ah: vowel(620, 1200, 2400),
  er: vowel(490, 1350, 1700),
};

const PHONES: Readonly<Record<string, readonly Phone[]>> = {
  ...Object.fromEntries(Object.entries(VOWELS).map(([name, phone]) => [name, [phone]])),
  ey: [VOWELS.eh, VOWELS.ih],
  ay: [VOWELS.aa, VOWELS.ih],
  oy: [VOWELS.ao, VOWELS.ih],
  ow: [VOWELS.ao, VOWELS.uh],
  aw: [VOWELS.aa, VOWELS.uh],
  m: [sonorant(0.5, 250, 1000, 2200)],
  n: [sonorant(0.5, 250, 1500, 2500)],
  ng: [sonorant(0.5, 250, 1900, 2700)],
  l: [sonorant(0.7, 360, 1000, 2600)],
  r: [sonorant(0.7, 420, 1250, 1600)],
  w: [sonorant(0.6, 300, 650, 2200)],
  y: [sonorant(0.6, 270, 2200, 3000)],
  h: [{ ...SILENT, formants: [550, 1500, 2500], breath: 0.6, durationMs: 60 }],
  f: [fricative(0, 0.25, 5500, 4000)],
  v: [fricative(0.5, 0.15, 5000, 4000)],
  th: [fricative(0, 0.2, 6500, 4000)],
  s: [fricative(0, 0.6, 6800, 1800)],
  z: [fricative(0.4, 0.4, 6500, 1800)],
  sh: [fricative(0, 0.6, 3200, 1500)],
  p: stop(CLOSED, 0.4, 900, 0.3),
  t: stop(CLOSED, 0.6, 4500, 0.2),
  k: stop(CLOSED, 0.5, 2200, 0.3),
  b: stop(VOICED_CLOSED, 0.25, 800, 0),
  d: stop(VOICED_CLOSED, 0.4, 3800, 0),
  g: stop(VOICED_CLOSED, 0.35, 2000, 0),
};

/** Rough English pronunciation of letters. The longest matching rule applies. */
const SPELLINGS: ReadonlyMap<string, string> = new Map([
  ["tion", "sh ah n"],
  ["ough", "ao"],
  ["igh", "ay"],
  ["tch", "t sh"],
  ["the", "th ah"],
  ["sh", "sh"],
  ["ch", "t sh"],
  ["th", "th"],
  ["ph", "f"],
  ["wh", "w"],
  ["ck", "k"],
  ["ng", "ng"],
  ["qu", "k w"],
  ["kn", "n"],
  ["wr", "r"],
  ["oo", "uw"],
  ["ee", "iy"],
  ["ea", "iy"],
  ["ai", "ey"],
  ["ay", "ey"],
  ["oa", "ow"],
  ["ou", "aw"],
  ["ow", "ow"],
  ["oi", "oy"],
  ["oy", "oy"],
  ["au", "ao"],
  ["aw", "ao"],
  ["ar", "aa r"],
  ["er", "er"],
  ["ir", "er"],
  ["ur", "er"],
  ["or", "ao r"],
  ["ce", "s eh"],
  ["ci", "s ih"],
  ["cy", "s iy"],
  ["ge", "d sh eh"],
  ["a", "ae"],
  ["b", "b"],
  ["c", "k"],
  ["d", "d"],
  ["e", "eh"],
  ["f", "f"],
  ["g", "g"],
  ["h", "h"],
  ["i", "ih"],
  ["j", "d sh"],
  ["k", "k"],
  ["l", "l"],
  ["m", "m"],
  ["n", "n"],
  ["o", "ao"],
  ["p", "p"],
  ["r", "r"],
  ["s", "s"],
  ["t", "t"],
  ["u", "ah"],
  ["v", "v"],
  ["w", "w"],
  ["x", "k s"],
  ["y", "iy"],
  ["z", "z"],
]);
const LONGEST_SPELLING = 4;

const DIGITS = [
  "z ih r ow",
  "w ah n",
  "t uw",
  "th r iy",
  "f ao r",
  "f ay v",
  "s ih k s",
  "s eh v eh n",
  "ey t",
  "n ay n",
];
/** Sounds of characters other than English letters: a consonant and a vowel, chosen by character code. */
const OTHER_CONSONANTS = ["m", "n", "l", "w", "y", "k", "t", "s", "h", "b"];
const OTHER_VOWELS = ["aa", "iy", "uw", "eh", "ow", "ay"];

/** Returns the sounds of a word. Returns an empty list if it has no letters, digits or symbols. */
export function phonesOfWord(word: string): Phone[] {
  const letters = word.normalize("NFD").toLowerCase().replace(/\p{M}/gu, "");
  // A final e of a longer word is silent.
  const spelled = letters.replace(/(?<=[a-z]{2})e(?![a-z])/g, "").replace(/([a-z])\1/g, doubled);
  const phones: Phone[] = [];
  for (let index = 0; index < spelled.length; ) {
    const [length, names] = soundAt(spelled, index);
    for (const name of names.split(" ")) phones.push(...(PHONES[name] ?? []));
    index += length;
  }
  return phones;
}

/** Replaces double consonants by single ones. */
function doubled(pair: string, letter: string): string {
  return "aeo".includes(letter) ? pair : letter;
}

function soundAt(text: string, index: number): readonly [length: number, phones: string] {
  for (let length = LONGEST_SPELLING; length > 0; length--) {
    const phones = SPELLINGS.get(text.slice(index, index + length));
    if (phones !== undefined) return [Math.min(length, text.length - index), phones];
  }
  const character = String.fromCodePoint(text.codePointAt(index)!);
  const { length } = character;
  if (/[0-9]/.test(character)) return [length, DIGITS[Number(character)]!];
  if (!/[\p{L}\p{N}\p{S}]/u.test(character)) return [length, ""];
  const code = character.codePointAt(0)!;
  const consonant = OTHER_CONSONANTS[code % OTHER_CONSONANTS.length]!;
  return [length, `${consonant} ${OTHER_VOWELS[code % OTHER_VOWELS.length]!}`];
}

export const PAUSE: Phone = SILENT;
