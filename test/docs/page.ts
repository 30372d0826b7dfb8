import { fromMarkdown } from "mdast-util-from-markdown";

/** The languages whose blocks run. */
export const LANGUAGES = ["sh", "ts", "python"] as const;
export type Language = (typeof LANGUAGES)[number];

interface Block {
  /** The line of the opening fence, from 1. */
  readonly line: number;
  readonly code: string;
}

/** A printed answer: `json`, whose values are compared by kind, or `text`, exact but for `…`. */
export interface Answer extends Block {
  readonly kind: "json" | "text";
  /** The answer may have more fields than the page prints. */
  readonly isPartial: boolean;
}

export interface Example extends Block {
  readonly kind: "example";
  readonly language: Language;
  /** The page says that a request of the block is rejected. */
  readonly fails: boolean;
  /** Why the block does not run in a test. */
  readonly notRun?: string;
  /** The answers that the page prints after the block, in its order. */
  readonly answers: Answer[];
}

/** Returns true if the block runs Python with the packages of OpenAI's SDK. */
export function needsPython({ language, code }: Example): boolean {
  return language === "python" || (language === "sh" && /\bpython3\b/.test(code));
}

/** A block that the reader saves under the name in its label. */
export interface SavedFile extends Block {
  readonly kind: "file";
  readonly name: string;
}

export interface Page {
  /** The headings of the first level. */
  readonly titles: readonly { readonly line: number }[];
  /** Examples and files, in the order of the page. */
  readonly steps: readonly (Example | SavedFile)[];
}

const LABEL = /\[([^\]]+)\]/;
const FILE_NAME = /^[\w./-]+\.\w+$/;
const NOT_RUN = /^<!-- not run: (.+) -->$/;

/** Reads the blocks of a page of docs/. */
export function readPage(markdown: string): Page {
  const steps: (Example | SavedFile)[] = [];
  /** The examples directly in front of a node, and the answers that belong to them. */
  let adjacent: Example[] = [];
  let notRun: string | undefined;
  const titles: { line: number }[] = [];
  for (const node of flat(fromMarkdown(withoutFrontmatter(markdown)).children)) {
    if (node.type === "heading" && node.depth === 1) {
      titles.push({ line: node.position!.start.line });
    }
    if (node.type !== "code") {
      adjacent = [];
      notRun = node.type === "html" ? NOT_RUN.exec(node.value)?.[1] : undefined;
      continue;
    }
    const info = node.meta ?? "";
    const block = { line: node.position!.start.line, code: node.value };
    const label = LABEL.exec(info)?.[1];
    const language = LANGUAGES.find((one) => one === node.lang);
    if (label !== undefined && FILE_NAME.test(label)) {
      steps.push({ kind: "file", name: label, ...block });
      adjacent = [];
    } else if (language !== undefined) {
      const fails = /\bfails\b/.test(info.replace(LABEL, ""));
      const example: Example = {
        kind: "example",
        language,
        fails,
        answers: [],
        ...block,
        ...(notRun === undefined ? {} : { notRun }),
      };
      if (adjacent.at(-1)?.answers.length) adjacent = [];
      steps.push(example);
      adjacent.push(example);
    } else if (node.lang === "json" || node.lang === "text") {
      const isPartial = /\bpartial\b/.test(info);
      // A JSON answer is that of the shell's block, which prints it; the others print parts of it.
      const shell = node.lang === "json" ? adjacent.findLast(isShell) : undefined;
      (shell ?? adjacent.at(-1))?.answers.push({ kind: node.lang, isPartial, ...block });
    } else {
      adjacent = [];
    }
    notRun = undefined;
  }
  return { titles, steps };
}

const isShell = ({ language }: Example): boolean => language === "sh";

type Nodes = ReturnType<typeof fromMarkdown>["children"];

/** Returns the nodes in the order of the page: those of a list or quotation in place of it. */
function flat(nodes: Nodes): Nodes {
  return nodes.flatMap((node) =>
    node.type === "list" || node.type === "listItem" || node.type === "blockquote"
      ? flat(node.children as Nodes)
      : [node],
  );
}

/** Blanks the settings of the site in front of the title, so that line numbers stay. */
function withoutFrontmatter(markdown: string): string {
  return markdown.replace(/^---\n[\s\S]*?\n---\n/, (settings) => settings.replace(/[^\n]/g, ""));
}
