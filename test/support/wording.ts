import { parseSync, Visitor } from "oxc-parser";

/**
 * The wording that `check` rejects. Each pattern stands for a word that hides who acts, or for a private word in
 * place of a term of the field.
 */
const ANYWHERE: readonly RegExp[] = [
  // A condition uses "if" or "when".
  /\b[Ww]here (?:it|there|that|nothing|none|no|a|an|the|one|they)\b/,
  // "After", except in front of a server.
  /\bbehind\b(?! (?:(?:a|an|the|its|your|one|another) )?(?:[\w-]+ )?(?:proxy|proxies|balancer|NAT)\b)/i,
  /\b(?:so many|so long|any more|at once|apart from|for good|is there|is gone|are gone)\b/i,
  // A total is "in total".
  /\bin all(?=\s*(?:[.,;:)"'`]|$))/i,
  /\bwhat is\b/i,
  // "Who" follows the person that it means.
  /(?<!\b(?:person|people|caller|user|operator|customer|engineer|reader)s?,? )\bwho(?:ever)?\b/i,
  /\b(?:nobody|nobody's|somebody|all the same|(?:is|are|was|were) told|told of|for ever|hears? of|heard of|anew|afresh|estates?|turnstiles?|patience|wish(?:es|ed)?|comes? of it)\b/i,
];

/** A comment begins with what a function does or returns, or with what a member is. */
const AT_START = /^(?:Of|As|By|With|Behind|What|Who)\b|^The same,/;

/** Words of identifiers: participles that stand for a noun, metaphors, and words with a better term. */
const IN_NAMES = new Set([
  "told",
  "tell",
  "tells",
  "asked",
  "handed",
  "taken",
  "kept",
  "passing",
  "ear",
  "ears",
  "half",
  "estate",
  "patience",
  "quietly",
  "own",
  "lack",
  "lacks",
  "lacked",
  "place",
  "places",
]);

export interface WordingFault {
  /** From 1. */
  readonly line: number;
  /** The words that match, or the identifier. */
  readonly words: string;
  /** The whole comment, string, sentence or identifier. */
  readonly text: string;
}

/** Returns the marker in a text, or undefined if it has none. */
export function markerIn(text: string): string | undefined {
  for (const pattern of ANYWHERE) {
    const match = pattern.exec(text);
    if (match !== null) return match[0];
  }
  return undefined;
}

/** Returns the words of an identifier in lower case: `readHTTPBody` has three. */
function wordsOfName(name: string): string[] {
  return name
    .replace(/([a-z\d])([A-Z])/g, "$1 $2")
    .replace(/([A-Z])([A-Z][a-z])/g, "$1 $2")
    .toLowerCase()
    .split(/[\s_$#]+/);
}

/** Returns the text of a comment without its marks, with line breaks as blanks. */
function commentText(comment: string): string {
  return comment
    .replace(/^\/\*+|\*+\/$/g, "")
    .replace(/^\/\/+/, "")
    .replace(/\n\s*(?:\*|\/\/+) ?/g, " ")
    .replace(/\s+/g, " ")
    .trim();
}

/** Returns the faults of a TypeScript source file: its comments, its strings and the names that it declares. */
export function sourceFaults(file: string, source: string): WordingFault[] {
  const faults: WordingFault[] = [];
  const lineStarts = [...source.matchAll(/^/gm)].map(({ index }) => index);
  const check = (position: number, text: string, isComment: boolean): void => {
    const words = markerIn(text) ?? (isComment ? AT_START.exec(text)?.[0] : undefined);
    if (words !== undefined) faults.push({ line: lineAt(lineStarts, position), words, text });
  };
  const declare = (node: Declared): void => {
    if (node == null) return;
    if (node.type === "Identifier" || node.type === "PrivateIdentifier") {
      // Names with underscores are columns, or members on the wire.
      const isForeign = /^[a-z\d]+_/.test(node.name!);
      const word = isForeign
        ? undefined
        : wordsOfName(node.name!).find((part) => IN_NAMES.has(part));
      if (word !== undefined) {
        faults.push({ line: lineAt(lineStarts, node.start), words: word, text: node.name! });
      }
    }
    if (node.type === "ObjectPattern") {
      for (const { value } of node.properties!) declare(value);
    }
    if (node.type === "ArrayPattern") for (const element of node.elements!) declare(element);
    if (node.type === "AssignmentPattern") declare(node.left);
    if (node.type === "RestElement") declare(node.argument);
    if (node.type === "TSParameterProperty") declare(node.parameter);
  };
  const parameters = ({ id, params }: { id?: unknown; params: readonly unknown[] }): void => {
    declare(id as Declared);
    for (const parameter of params) declare(parameter as Declared);
  };
  const byId = ({ id }: { id: unknown }): void => declare(id as Declared);
  const byKey = ({ key, computed }: { key: unknown; computed?: boolean }): void => {
    if (computed !== true) declare(key as Declared);
  };
  const { program, comments } = parseSync(file, source);
  new Visitor({
    Literal: ({ value, start }) => {
      if (typeof value === "string") check(start, value.replace(/\s+/g, " "), false);
    },
    TemplateElement: ({ value, start }) => check(start, value.raw.replace(/\s+/g, " "), false),
    JSXText: ({ value, start }) => check(start, value.replace(/\s+/g, " "), false),
    VariableDeclarator: byId,
    FunctionDeclaration: parameters,
    FunctionExpression: parameters,
    ArrowFunctionExpression: parameters,
    ClassDeclaration: byId,
    TSInterfaceDeclaration: byId,
    TSTypeAliasDeclaration: byId,
    TSEnumDeclaration: byId,
    MethodDefinition: byKey,
    PropertyDefinition: byKey,
    TSPropertySignature: byKey,
    TSMethodSignature: byKey,
    Property: byKey,
    CatchClause: ({ param }) => declare(param as Declared),
  }).visit(program);
  for (const { start, text } of joined(comments, source)) check(start, commentText(text), true);
  return faults.sort((left, right) => left.line - right.line);
}

/** What a pattern of oxc's syntax tree may have, as far as names are declared in it. */
type Declared =
  | {
      readonly type: string;
      readonly start: number;
      readonly name?: string;
      readonly properties?: readonly { readonly value?: Declared }[];
      readonly elements?: readonly Declared[];
      readonly left?: Declared;
      readonly argument?: Declared;
      readonly parameter?: Declared;
      readonly value?: Declared;
    }
  | null
  | undefined;

/** Returns the comments, with line comments that follow one another as one. */
function joined(
  comments: readonly { readonly type: string; readonly start: number; readonly end: number }[],
  source: string,
): { readonly start: number; readonly text: string }[] {
  const all: { start: number; end: number; isLine: boolean }[] = [];
  for (const { type, start, end } of comments) {
    const before = all.at(-1);
    const isLine = type === "Line";
    if (isLine && before?.isLine && /^\s*$/.test(source.slice(before.end, start))) before.end = end;
    else all.push({ start, end, isLine });
  }
  return all.map(({ start, end }) => ({ start, text: source.slice(start, end) }));
}

/** Returns the line, from 1, of a position. */
function lineAt(lineStarts: readonly number[], position: number): number {
  let line = 0;
  while (line < lineStarts.length && lineStarts[line]! <= position) line++;
  return line;
}

/** Returns the faults of a page: each of its lines outside of code. */
export function pageFaults(page: string): WordingFault[] {
  const faults: WordingFault[] = [];
  let isCode = false;
  for (const [index, line] of page.split("\n").entries()) {
    if (/^\s*```/.test(line)) isCode = !isCode;
    if (isCode) continue;
    const words = markerIn(line.replaceAll(/`[^`]*`/g, ""));
    if (words !== undefined) faults.push({ line: index + 1, words, text: line });
  }
  return faults;
}

/** Returns the faults of an SQL file: each of its comment lines. */
export function sqlFaults(sql: string): WordingFault[] {
  const faults: WordingFault[] = [];
  for (const [index, line] of sql.split("\n").entries()) {
    const text = /^\s*--\s*(.*)/.exec(line)?.[1];
    const words = text === undefined ? undefined : markerIn(text);
    if (words !== undefined) faults.push({ line: index + 1, words, text: line });
  }
  return faults;
}
