const styled = (first: number, firstDigit?: number) => (text: string) =>
  Array.from(text, (one) => {
    const code = one.charCodeAt(0);
    if (code >= 0x61 && code <= 0x7a) return String.fromCodePoint(first + 26 + code - 0x61);
    if (code >= 0x41 && code <= 0x5a) return String.fromCodePoint(first + code - 0x41);
    const isDigit = firstDigit !== undefined && code >= 0x30 && code <= 0x39;
    return isDigit ? String.fromCodePoint(firstDigit + code - 0x30) : one;
  }).join("");

const between = (hidden: string) => (text: string) => Array.from(text).join(hidden);

const fullWidth = (text: string) =>
  Array.from(text, (one) => {
    const code = one.charCodeAt(0);
    return code > 0x20 && code < 0x7f ? String.fromCharCode(code + 0xfee0) : one;
  }).join("");

/** Spellings of ASCII text that readers and models take for the text itself. */
export const SPELLINGS: readonly (readonly [name: string, spell: (text: string) => string])[] = [
  ["zero-width spaces", between("\u200b")],
  ["zero-width non-joiners", between("\u200c")],
  ["zero-width joiners", between("\u200d")],
  ["word joiners", between("\u2060")],
  ["byte order marks", between("\ufeff")],
  ["soft hyphens", between("\u00ad")],
  ["controls of direction", between("\u202a\u202c")],
  ["invisible times", between("\u2062")],
  ["combining grapheme joiners", between("\u034f")],
  ["variation selectors", between("\ufe0f\u{e0100}")],
  ["tag characters", between("\u{e0041}")],
  ["Hangul fillers", between("\u3164")],
  ["combining strokes", between("\u0336")],
  ["full-width letters", fullWidth],
  ["mathematical bold", styled(0x1d400, 0x1d7ce)],
  ["mathematical sans-serif", styled(0x1d5a0, 0x1d7e2)],
  ["mathematical monospace", styled(0x1d670, 0x1d7f6)],
  ["a thousand zero-width spaces", between("\u200b".repeat(1_000))],
];
