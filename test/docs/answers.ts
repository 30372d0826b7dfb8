/** Members whose values a page prints as they are. Other values are compared by kind. */
const EXACT = new Set(["object", "type", "status", "role", "code", "finish_reason"]);

/** Returns the last JSON object or array in the output of a block, or undefined if it has none. */
export function lastJson(output: string): unknown {
  let last: unknown;
  let index = 0;
  while (index < output.length) {
    if (!"{[".includes(output[index]!)) {
      index++;
      continue;
    }
    const end = jsonEnd(output, index);
    const value = end === undefined ? undefined : parsed(output.slice(index, end));
    if (value === undefined) {
      index++;
    } else {
      last = value;
      index = end!;
    }
  }
  return last;
}

/** Returns the index after the bracket that closes the one at `start`. */
function jsonEnd(text: string, start: number): number | undefined {
  let depth = 0;
  let isString = false;
  for (let index = start; index < text.length; index++) {
    const character = text[index]!;
    if (isString) {
      if (character === "\\") index++;
      else if (character === '"') isString = false;
    } else if (character === '"') isString = true;
    else if ("{[".includes(character)) depth++;
    else if ("}]".includes(character) && --depth === 0) return index + 1;
  }
  return undefined;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns how an answer differs from the printed one: one line for each member. */
export function differences(
  printed: unknown,
  answer: unknown,
  isPartial: boolean,
  path = "answer",
): string[] {
  const kinds = [kindOf(printed), kindOf(answer)];
  if (kinds[0] !== kinds[1]) {
    return [`${path}: the page prints ${kinds[0]}, the answer has ${kinds[1]}`];
  }
  if (Array.isArray(printed)) {
    return printed.flatMap((element, index) =>
      differences(element, (answer as unknown[])[index], isPartial, `${path}[${index}]`),
    );
  }
  if (typeof printed !== "object" || printed === null) {
    const member = path.slice(path.lastIndexOf(".") + 1);
    const isExact = typeof printed === "boolean" || EXACT.has(member);
    return isExact && printed !== answer
      ? [
          `${path}: the page prints ${JSON.stringify(printed)}, the answer has ${JSON.stringify(answer)}`,
        ]
      : [];
  }
  const members = printed as Record<string, unknown>;
  const answered = answer as Record<string, unknown>;
  const unprinted = isPartial ? [] : Object.keys(answered).filter((name) => !(name in members));
  return [
    ...unprinted.map((name) => `${path}.${name}: missing on the page`),
    ...Object.entries(members).flatMap(([name, value]) =>
      name in answered
        ? differences(value, answered[name], isPartial, `${path}.${name}`)
        : [`${path}.${name}: missing in the answer`],
    ),
  ];
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (value === undefined) return "nothing";
  return Array.isArray(value) ? "array" : typeof value;
}

/** Returns true if an output is the printed text, in which `…` stands for any characters. */
export function matchesText(printed: string, output: string): boolean {
  const pattern = printed.trim().split("…").map(RegExp.escape).join("[\\s\\S]*?");
  // Heads of HTTP end their lines with both characters.
  return new RegExp(`^${pattern}$`).test(output.replaceAll("\r\n", "\n").trim());
}
