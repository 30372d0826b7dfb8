import { useEffect, useRef } from "preact/hooks";

interface MarkdownProps {
  readonly text: string;
  /** True while the text grows. */
  readonly isRunning: boolean;
}

/** Longest text that is shown as Markdown, in characters. Longer ones would block the page. */
const MAX_CHARACTERS = 50_000;
/** Share of the time that showing a growing text can take. */
const RENDERING_SHARE = 1 / 5;

type Renderer = (text: string) => DocumentFragment;
let renderer: Promise<Renderer> | undefined;

/** Loads Markdown, sanitiser and highlighter, which no other page needs. */
function loadRenderer(): Promise<Renderer> {
  renderer ??= import("./markdown.ts")
    .then(({ renderMarkdown }) => renderMarkdown)
    .catch((error: unknown) => {
      renderer = undefined;
      throw error;
    });
  return renderer;
}

/** A text of a model, which can be hostile. It is plain text until the renderer has loaded, and if it is very long. */
export function MarkdownView({ text, isRunning }: MarkdownProps) {
  const shown = useRef<HTMLDivElement>(null);
  const nextAtMs = useRef(0);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isCurrent = true;
    const show = (render: Renderer) => {
      if (!isCurrent) return;
      const beganMs = performance.now();
      const content = render(text);
      for (const block of content.querySelectorAll("pre")) block.replaceWith(withCopy(block));
      shown.current!.replaceChildren(content);
      const tookMs = performance.now() - beganMs;
      nextAtMs.current = performance.now() + tookMs / RENDERING_SHARE;
    };
    const plain = () => isCurrent && shown.current!.replaceChildren(plainText(text));
    if (text.length > MAX_CHARACTERS) plain();
    else {
      if (shown.current!.childNodes.length === 0) plain();
      const waitMs = isRunning ? Math.max(0, nextAtMs.current - performance.now()) : 0;
      timer = setTimeout(() => void loadRenderer().then(show).catch(plain), waitMs);
    }
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [text, isRunning]);
  return <div ref={shown} class="markdown" />;
}

function plainText(text: string): HTMLElement {
  const paragraph = document.createElement("p");
  paragraph.className = "message-text";
  paragraph.textContent = text;
  return paragraph;
}

const COPIED_MS = 2_000;

/** Returns a block of code below its language and a button that copies it. */
function withCopy(block: HTMLPreElement): HTMLElement {
  const box = document.createElement("div");
  box.className = "code-box";
  const head = document.createElement("div");
  const language = document.createElement("span");
  language.textContent = block.getAttribute("data-language") || "text";
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "button quiet", textContent: "Copy" });
  button.setAttribute("aria-label", "Copy code");
  button.addEventListener("click", () => {
    const code = box.querySelector("pre")!;
    // Browsers allow the clipboard on secure origins only. On other origins the text is selected.
    if (navigator.clipboard === undefined) return getSelection()?.selectAllChildren(code);
    void navigator.clipboard.writeText(code.textContent ?? "").then(() => {
      button.textContent = "Copied";
      setTimeout(() => {
        button.textContent = "Copy";
      }, COPIED_MS);
    });
  });
  head.append(language, button);
  const code = block.cloneNode(true) as HTMLPreElement;
  // The block scrolls, so it has to be focusable.
  code.tabIndex = 0;
  box.append(head, code);
  return box;
}
