/** Control characters. Names and messages come from callers and servers, and a terminal would obey them. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Returns the text without characters that could move the cursor or hide text. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, "�");
}
