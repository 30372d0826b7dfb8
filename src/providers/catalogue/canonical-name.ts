import { vendorsName } from "../../platform/config/bedrock-names.ts";

/** `author/slug` of a model, equal for all of its providers. */
interface CanonicalName {
  readonly author: string;
  readonly slug: string;
}

/** Authors by the vendor names that hosts use. */
const AUTHOR_OF_VENDOR: Readonly<Record<string, string>> = {
  "deepseek-ai": "deepseek",
  meta: "meta-llama",
  mistralai: "mistral",
  moonshotai: "moonshot",
  "x-ai": "xai",
  "z-ai": "zai",
  "zai-org": "zai",
};

/** Authors by the names of models without a vendor. The first match applies. */
const AUTHOR_OF_NAME: readonly { readonly name: RegExp; readonly author: string }[] = [
  { name: /^(gpt-|chatgpt-|o[134](-|$)|text-embedding-|whisper-|tts-|dall-e-)/, author: "openai" },
  { name: /^claude-/, author: "anthropic" },
  { name: /nemotron/, author: "nvidia" },
  { name: /^deepseek-/, author: "deepseek" },
  { name: /^(gemini-|gemma-)/, author: "google" },
  { name: /^(mistral|mixtral|ministral|magistral|codestral|devstral|pixtral)-/, author: "mistral" },
  { name: /^grok-/, author: "xai" },
  { name: /^(qwen|qwq-)/, author: "qwen" },
  { name: /^(kimi-|moonshot-)/, author: "moonshot" },
  { name: /^glm-/, author: "zai" },
  { name: /^phi-/, author: "microsoft" },
  { name: /^minimax-/, author: "minimax" },
  { name: /^sonar(-|$)/, author: "perplexity" },
  { name: /^command-/, author: "cohere" },
  // Models of other authors that are derived from Llama also have its name.
  { name: /^llama-(?!.*(groq|swallow|hermes|distill|sonar))/, author: "meta-llama" },
];

/**
 * Slugs that are another spelling of the same weights. Uncertain cases stay two entries: a model that is listed twice
 * costs a caller nothing, but a model that is mistaken for another one does.
 */
const SAME_SLUG: Readonly<Record<string, string>> = {
  "command-a-03-2025": "command-a",
  "gemma2-9b-it": "gemma-2-9b-it",
  "kimi-k2-instruct": "kimi-k2",
  "kimi-k2-instruct-0905": "kimi-k2-0905",
  "kimi-k2-0905-preview": "kimi-k2-0905",
  "kimi-k2-0711-preview": "kimi-k2",
  "llama-3.1-8b": "llama-3.1-8b-instruct",
  "llama-3.1-8b-instant": "llama-3.1-8b-instruct",
  "llama-3.1-70b-versatile": "llama-3.1-70b-instruct",
  "llama-3.3-70b": "llama-3.3-70b-instruct",
  "llama-3.3-70b-versatile": "llama-3.3-70b-instruct",
  "llama-4-maverick-17b-128e-instruct": "llama-4-maverick",
  "llama-4-scout-17b-16e-instruct": "llama-4-scout",
  "qwen3-235b-a22b-instruct-2507": "qwen3-235b-a22b-2507",
  "qwen3-coder-480b": "qwen3-coder",
  "qwen3-coder-480b-a35b": "qwen3-coder",
  "qwen3-coder-480b-a35b-instruct": "qwen3-coder",
};

const FIREWORKS_PREFIX = /^accounts\/fireworks\/models\//;
/** Variants of the same weights that hosts append to a model's name. */
const HOSTS_SUFFIX = /(-instruct|-\d+b|-a\d+b|-\d{4})-(turbo|fp8|fp8-tput|fast|bf16)$/;

/**
 * Returns the canonical name of a model that a provider calls `name`.
 *
 * @param provider the provider's type
 * @param isAuthor true if the provider makes its models itself, so that it is the author of models without a vendor
 * @returns undefined if the author is unknown; the model then belongs to the provider
 */
export function canonicalName(
  provider: string,
  isAuthor: boolean,
  name: string,
): CanonicalName | undefined {
  const bare = bareName(provider === "bedrock" ? vendorsName(name) : name);
  const cut = bare.lastIndexOf("/");
  const vendor = cut < 0 ? undefined : bare.slice(0, cut);
  const spelled = spelledAlike(bare.slice(cut + 1));
  const author =
    vendor === undefined
      ? isAuthor
        ? provider
        : authorOfName(spelled)
      : Object.hasOwn(AUTHOR_OF_VENDOR, vendor)
        ? AUTHOR_OF_VENDOR[vendor]
        : vendor;
  if (author === undefined || author.includes("/")) return undefined;
  return { author, slug: slugOf(author, spelled) };
}

/** Returns the author of the model with a slug. Undefined if the name does not show it. */
export function authorOfName(slug: string): string | undefined {
  return AUTHOR_OF_NAME.find(({ name }) => name.test(slug))?.author;
}

/** Returns an id with the catalogue's name of its author. Undefined if the id already has that name. */
export function underKnownAuthor(id: string): string | undefined {
  const cut = id.indexOf("/");
  const vendor = id.slice(0, cut);
  if (cut < 0 || !Object.hasOwn(AUTHOR_OF_VENDOR, vendor)) return undefined;
  return `${AUTHOR_OF_VENDOR[vendor]}${id.slice(cut)}`;
}

const DOTTED_VERSION = /(\d)\.(?=\d)/g;
const DATE = /-(20\d{2})-?(\d{2})-?(\d{2})(?=$|[:@-])/;
/** Authors that write dates with hyphens. Others write eight digits. */
const HYPHENATES_DATES: ReadonlySet<string> = new Set(["openai", "qwen"]);

/**
 * Returns one spelling for all spellings of an id or a bare slug. They differ in dots or hyphens of versions, in
 * hyphens of dates, and in hosts' names of an author.
 */
export function commonSpelling(name: string): string {
  const id = underKnownAuthor(name) ?? name;
  return id.replaceAll(DOTTED_VERSION, "$1-").replace(DATE, "-$1$2$3");
}

function bareName(name: string): string {
  const isOfFireworks = FIREWORKS_PREFIX.test(name);
  const bare = name.replace(FIREWORKS_PREFIX, "").toLowerCase();
  return isOfFireworks ? bare.replaceAll(/(\d)p(\d)/g, "$1.$2") : bare;
}

/** A version at Vertex AI. Anthropic's own names have a hyphen in front of the date, up to 4.1. */
const CLAUDE_AT_VERTEX = /^(claude-.+?)(?:-v2)?@(\d{8})$/;

function spelledAlike(slug: string): string {
  return slug
    .replace(CLAUDE_AT_VERTEX, (_, name: string, date: string) =>
      name.endsWith("-4-5") ? name : `${name}-${date}`,
    )
    .replace(/-maas$/, "")
    .replace(/^meta-llama-/, "llama-")
    .replace(/^llama-?v?(\d+\.\d+)-/, "llama-$1-")
    .replace(/^zai-glm-/, "glm-")
    .replace(/^qwen-3-/, "qwen3-")
    .replace(/^qwen2\.5-/, "qwen-2.5-");
}

function slugOf(author: string, spelled: string): string {
  const isOpen = author === "meta-llama" || author === "qwen" || author === "moonshot";
  const dated = spelled.replace(DATE, HYPHENATES_DATES.has(author) ? "-$1-$2-$3" : "-$1$2$3");
  const versioned = author === "anthropic" ? dated.replaceAll(DOTTED_VERSION, "$1-") : dated;
  const slug = isOpen ? versioned.replace(HOSTS_SUFFIX, "$1") : versioned;
  return Object.hasOwn(SAME_SLUG, slug) ? SAME_SLUG[slug]! : slug;
}
