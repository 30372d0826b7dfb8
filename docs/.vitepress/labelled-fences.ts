import type { MarkdownRenderer } from "vitepress";

/**
 * Shows fences with a label, such as ```` ```sh [curl] ````, under tabs with these labels. Fences
 * directly after one another share their tabs. A fence that is labelled with the name of a file has
 * its own tab, because the reader needs all files.
 */
export function labelledFences(markdown: MarkdownRenderer): void {
  markdown.core.ruler.after("block", "labelled-fences", (state) => {
    const mark = (nesting: 1 | -1) =>
      new state.Token(`container_code-group_${nesting === 1 ? "open" : "close"}`, "div", nesting);
    const tokens: typeof state.tokens = [];
    let group: typeof state.tokens = [];
    const endGroup = () => {
      if (group.length > 0) tokens.push(mark(1), ...group, mark(-1));
      group = [];
    };
    for (const token of state.tokens) {
      if (isComment(token)) continue;
      const label = token.type === "fence" ? labelOf(token.info) : undefined;
      const isFile = label?.includes(".") ?? false;
      if (label === undefined || isFile) endGroup();
      if (label === undefined) tokens.push(token);
      else group.push(token);
      if (isFile) endGroup();
    }
    endGroup();
    state.tokens = tokens;
  });
}

function labelOf(info: string): string | undefined {
  return /\[(.+)\]/.exec(info)?.[1];
}

/** Returns true for a comment, such as the reason why an example does not run in a test. */
function isComment({ type, content }: { readonly type: string; readonly content: string }) {
  return type === "html_block" && /^<!--[\s\S]*?-->\s*$/.test(content);
}
