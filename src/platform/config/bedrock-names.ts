/**
 * The prefix of a model that is called by an inference profile, which spreads calls over regions.
 */
const PROFILE = /^(?:global|us|us-gov|ca|eu|apac|jp|au|sa|regional)\./;
/**
 * Models that Bedrock serves by profiles, which most of them require: everywhere, and from America
 * only.
 */
const PROFILED = /^(?:anthropic\.claude|amazon\.nova)/;
const PROFILED_IN_AMERICA =
  /^(?:meta\.llama(?:3-[123]|4)|deepseek\.r1|mistral\.pixtral|openai\.gpt-5|writer\.)/;
/** The suffix of a model's name in its id. */
const VERSION = /-v[1-9]\d*:\d+$|-1:\d+$/;
/** Claude models from 4.5 on have one date each, which Anthropic's own names omit. */
const DATED_CLAUDE = /^(claude-(?:opus|sonnet|haiku)-4-5)-\d{8}$/;

/**
 * Returns Bedrock's id of a model of the price list. The list marks prices outside the global
 * profile as `regional`, which is not part of an id, and gives new models versions that they do not
 * have.
 */
export function nameAtBedrock(listed: string): string {
  return listed
    .replace(/^regional\./, "")
    .replace(/claude-opus-4-5-v1:0$/, "claude-opus-4-5-20251101-v1:0")
    .replace(/claude-opus-4-6-v1:0$/, "claude-opus-4-6-v1")
    .replace(/(claude-[a-z]+-(?:4-[6-9]|[5-9](?:-\d)?))-v1:0$/, "$1")
    .replace(/^(nvidia\..*):0$/, "$1")
    .replace(/^(qwen\.qwen3-vl.*)-v1:0$/, "$1");
}

/** Returns a model's id without its inference profile. */
export function withoutProfile(name: string): string {
  return name.replace(PROFILE, "");
}

/**
 * Returns the id by which a model without a profile is called from a region. The id has the
 * region's profile if the model has one
 * (https://docs.aws.amazon.com/bedrock/latest/userguide/inference-profiles-support.html).
 */
export function nameInRegion(name: string, region: string): string {
  const profile = profileOf(name, region);
  const isProfiled = PROFILED.test(name) || (profile === "us" && PROFILED_IN_AMERICA.test(name));
  return isProfiled && profile !== undefined ? `${profile}.${name}` : name;
}

function profileOf(name: string, region: string): string | undefined {
  if (region.startsWith("us-gov-")) return "us-gov";
  if (/^(?:us|ca)-/.test(region)) return "us";
  if (region.startsWith("eu-")) return "eu";
  if (!region.startsWith("ap-")) return undefined;
  // Bedrock spreads the calls of Claude models from 4.5 on over one country.
  const isOfCountry = /claude-(?:[a-z]+-(?:4-[5-9]|[5-9]))/.test(name);
  if (isOfCountry && /^ap-northeast-[13]$/.test(region)) return "jp";
  if (isOfCountry && /^ap-southeast-[24]$/.test(region)) return "au";
  return "apac";
}

/**
 * Returns a model's name as other providers spell it, `vendor/slug`:
 * `us.meta.llama3-3-70b-instruct-v1:0` is Llama 3.3.
 */
export function vendorsName(id: string): string {
  const plain = withoutProfile(id);
  const cut = plain.indexOf(".");
  if (cut < 0) return plain;
  const vendor = plain.slice(0, cut);
  const slug = plain.slice(cut + 1);
  return `${vendor}/${spelled(vendor, slug)}`;
}

function spelled(vendor: string, slug: string): string {
  // A number after an Amazon name is part of the name.
  if (vendor === "amazon") return slug.replace(/:\d+$/, "");
  const name = slug.replace(VERSION, "").replace(/-v0:(\d)$/, "-v0.$1");
  if (vendor === "anthropic") return name.replace(/-v\d$/, "").replace(DATED_CLAUDE, "$1");
  if (vendor === "deepseek") return `deepseek-${name}`;
  return name
    .replace(/^llama4-(maverick|scout)-.*$/, "llama-4-$1")
    .replace(/^llama3-([123])-/, "llama-3.$1-")
    .replace(/^llama3-/, "llama-3-");
}
