/** White space, then one token of JSON (RFC 8259), or nothing at the end of the text. */
const TOKEN =
  /[ \t\r\n]*(?:([{}[\]:,])|"(?:[^"\\\t\r\n]|\\(?:["\\/bfnrt]|u[\dA-Fa-f]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|true\b|false\b|null\b|$)/y;

/** What may come next: a value or an end, a member's name, what follows a name, or what follows a value. */
type Expected = "value" | "value or end" | "name" | "name or end" | "colon" | "behind" | "nothing";

/**
 * The line, counted from 1, in which a text stops being JSON; the last one where something is missing at the
 * end. The platform's parser tells no place, and quotes the text, which may hold a key.
 */
export function faultyLine(text: string): number {
  const closers: string[] = [];
  let expected: Expected = "value";
  let position = 0;
  for (;;) {
    TOKEN.lastIndex = position;
    const found = TOKEN.exec(text);
    if (found === null) return lineOf(text, skipSpace(text, position));
    const [whole, sign] = found;
    const token = whole.trimStart();
    const next: Expected | undefined =
      token === "" ? undefined : follow(expected, sign ?? token[0]!, sign !== undefined, closers);
    if (next === undefined) return lineOf(text, TOKEN.lastIndex - token.length);
    expected = next;
    position = TOKEN.lastIndex;
  }
}

/** Undefined where the token may not stand there. */
function follow(
  expected: Expected,
  first: string,
  isSign: boolean,
  closers: string[],
): Expected | undefined {
  const behind = () => (closers.length === 0 ? "nothing" : "behind");
  const mayClose = expected === "behind" || expected.endsWith("or end");
  if (isSign && first === closers.at(-1) && mayClose) {
    closers.pop();
    return behind();
  }
  if (expected === "colon") return first === ":" ? "value" : undefined;
  if (expected === "behind") {
    if (first !== ",") return undefined;
    return closers.at(-1) === "}" ? "name" : "value";
  }
  if (expected.startsWith("name")) return first === '"' ? "colon" : undefined;
  if (expected === "nothing") return undefined;
  if (!isSign) return behind();
  if (first !== "{" && first !== "[") return undefined;
  closers.push(first === "{" ? "}" : "]");
  return first === "{" ? "name or end" : "value or end";
}

function skipSpace(text: string, position: number): number {
  let at = position;
  while (/[ \t\r\n]/.test(text[at] ?? "")) at++;
  return at;
}

function lineOf(text: string, position: number): number {
  return text.slice(0, position).split("\n").length;
}
