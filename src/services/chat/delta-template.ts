/**
 * Most chunks of a stream differ from the one before in nothing but the text they bring. A template is
 * what such a chunk holds around its text, and what the rewritten chunk holds around it; a chunk that
 * fits is rewritten by cutting and joining, at a tenth of the cost of parsing. A chunk that does not fit
 * to the letter is parsed.
 */
export interface DeltaTemplate {
  /** Around the text, on the provider's wire. */
  readonly opening: string;
  readonly closing: string;
  /** Around the text, on ours. */
  readonly head: string;
  readonly tail: string;
}

const MARK = /"content": ?"/g;
/** What would end the text early, or would not be JSON: such a chunk is parsed. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const UNSAFE = /["\\\x00-\x1f]/;

/** Learns from a chunk with a single choice that brings content and nothing else. */
export function learnTemplate(
  raw: string,
  rewritten: string,
  choices: readonly Record<string, unknown>[],
): DeltaTemplate | undefined {
  const [choice] = choices;
  if (choices.length !== 1 || choice!.finish_reason !== null) return undefined;
  const delta = choice!.delta as Record<string, unknown>;
  const fields = Object.keys(delta);
  if (fields.length !== 1 || typeof delta.content !== "string") return undefined;
  const source = around(raw);
  const target = around(rewritten);
  if (source === undefined || target === undefined) return undefined;
  return {
    opening: `data: ${source.before}`,
    closing: `${source.after}\n\n`,
    head: `data: ${target.before}`,
    tail: `${target.after}\n\n`,
  };
}

/** Events in a row that fit. */
export interface TemplateRun {
  readonly contents: readonly string[];
  /** Position behind the last of them. */
  readonly end: number;
}

/** The events from `start` on that fit, as far as they stand in a row. */
export function matchRun(template: DeltaTemplate, text: string, start: number): TemplateRun {
  const { opening, closing } = template;
  const contents: string[] = [];
  let end = start;
  while (text.startsWith(opening, end)) {
    const first = end + opening.length;
    const quote = text.indexOf('"', first);
    if (quote < 0 || !text.startsWith(closing, quote)) break;
    const content = text.slice(first, quote);
    if (UNSAFE.test(content)) break;
    contents.push(content);
    end = quote + closing.length;
  }
  return { contents, end };
}

function around(text: string): { before: string; after: string } | undefined {
  const marks = [...text.matchAll(MARK)];
  if (marks.length !== 1) return undefined;
  const start = marks[0]!.index + marks[0]![0].length;
  const end = text.indexOf('"', start);
  if (end < 0 || text.slice(start, end).includes("\\")) return undefined;
  return { before: text.slice(0, start), after: text.slice(end) };
}
