/** What a tag of postgres.js was called with. */
export interface TaggedStatement {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** A value that postgres.js writes as a list of columns or of values: sql([...]), sql({...}), sql.array. */
export class Listed {
  readonly of: unknown;

  constructor(of: unknown) {
    this.of = of;
  }
}

const texts = new WeakMap<TemplateStringsArray, string>();

/** The text with a ? for each value, and single spaces. */
export function statementText(strings: TemplateStringsArray): string {
  let text = texts.get(strings);
  if (text === undefined) {
    text = strings.join("?").replace(/\s+/g, " ").trim();
    texts.set(strings, text);
  }
  return text;
}
