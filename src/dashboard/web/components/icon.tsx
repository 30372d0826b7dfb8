import { h } from "preact";
import drawn from "./icons.json";

/*
 * Icons of Lucide (lucide.dev, ISC licence, copyright Lucide Contributors) and marks of LobeHub Icons (MIT licence,
 * copyright LobeHub), inlined in icons.json by test/dashboard/draw-icons.ts. The marks belong to their owners.
 */

export type IconName = keyof typeof drawn.icons;
export const ICON_NAMES = Object.keys(drawn.icons) as readonly IconName[];
type IconNode = readonly [tag: string, attributes: Readonly<Record<string, string>>];

/** An icon beside a text, or in a button with a label. Screen readers skip it. */
export function Icon({ name }: { readonly name: IconName }) {
  const nodes = drawn.icons[name] as unknown as readonly IconNode[];
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      {nodes.map(([tag, attributes], index) => h(tag, { key: index, ...attributes }))}
    </svg>
  );
}

/** Marks by the author in a model id, or by the type of a provider. */
const MARK_OF: Readonly<Record<string, keyof typeof drawn.marks>> = {
  ...{ openai: "openai", azure: "microsoft", microsoft: "microsoft", anthropic: "anthropic" },
  ...{ google: "gemini", vertex: "gemini", mistral: "mistral", mistralai: "mistral" },
  ...{ meta: "meta", "meta-llama": "meta", deepseek: "deepseek", xai: "xai", "x-ai": "xai" },
  ...{ cohere: "cohere", bfl: "bfl", "black-forest-labs": "bfl", elevenlabs: "elevenlabs" },
  ...{ stability: "stability", stabilityai: "stability", qwen: "qwen", alibaba: "qwen" },
  perplexity: "perplexity",
};

/** The mark of a model's author or of a provider. Without a drawn one it is the first letter of the name. */
export function Mark({ of: name }: { readonly of: string }) {
  const author = name.split("/")[0]!.toLowerCase();
  const path = Object.hasOwn(MARK_OF, author) ? drawn.marks[MARK_OF[author]!] : undefined;
  return (
    <span class="author-mark" aria-hidden="true">
      {path === undefined ? (
        author.slice(0, 1).toUpperCase()
      ) : (
        <svg viewBox="0 0 24 24" aria-hidden="true">
          <path d={path} fill-rule="evenodd" />
        </svg>
      )}
    </span>
  );
}
