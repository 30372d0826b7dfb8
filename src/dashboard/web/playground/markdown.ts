import createDOMPurify, { type Config } from "dompurify";
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { Marked, type Tokens } from "marked";

/*
 * Markdown of models as HTML. Its libraries are a file of their own, which the playground loads with the first answer.
 * Models can be made to write anything, so the HTML is sanitised after everything else.
 */

const LANGUAGES = {
  ...{ bash, c, cpp, csharp, css, diff, go, java, javascript, json, kotlin, python, ruby, rust },
  ...{ sql, swift, typescript, xml, yaml },
};
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/** Longest code that is highlighted, in characters. */
const MAX_HIGHLIGHTED = 20_000;

const ESCAPES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
};
const escaped = (text: string) => text.replace(/[&<>"]/g, (char) => ESCAPES[char]!);

const marked = new Marked({
  gfm: true,
  renderer: {
    // HTML of the model is shown as its text.
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escaped(text),
    // A picture of another host would tell it that the answer was read. So it is a link.
    image: ({ href, text }: Tokens.Image) =>
      `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    code({ text, lang }: Tokens.Code) {
      const name = /^[\w+#-]{1,20}/.exec(lang ?? "")?.[0] ?? "";
      const isKnown = text.length <= MAX_HIGHLIGHTED && hljs.getLanguage(name) !== undefined;
      const html = isKnown ? hljs.highlight(text, { language: name }).value : escaped(text);
      return `<pre class="block code" data-language="${escaped(name)}"><code>${html}</code></pre>`;
    },
  },
});

const purifier = createDOMPurify(window);
/** Elements of Markdown alone: nothing that loads, runs, submits or lies on top of the page. */
const ALLOWED: Config & { RETURN_DOM_FRAGMENT: true } = {
  ALLOWED_TAGS: [
    ...["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr"],
    ...[
      "li",
      "ol",
      "p",
      "pre",
      "span",
      "strong",
      "table",
      "tbody",
      "td",
      "th",
      "thead",
      "tr",
      "ul",
    ],
  ],
  ALLOWED_ATTR: ["href", "class", "data-language", "start", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
/** Classes of highlighted code. Others could look like a part of the page. */
const CLASS = /^(?:hljs-[\w-]+(?: [\w-]+_)*|block code)$/;

purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.hasAttribute("class") && !CLASS.test(node.getAttribute("class")!)) {
    node.removeAttribute("class");
  }
  if (node.tagName !== "A") return;
  node.setAttribute("rel", "noopener noreferrer nofollow");
  node.setAttribute("target", "_blank");
});

/** Returns the elements of a text in Markdown. */
export function renderMarkdown(text: string): DocumentFragment {
  const html = marked.parse(text, { async: false });
  return purifier.sanitize(html, ALLOWED);
}
