/** Tags of one request; more are refused. */
export const MAX_TAGS = 32;

/**
 * The tags of a request, each once: `metadata.tags` is a list of them, or one text with commas between them. Other
 * members of a list are none.
 */
export function tagsOf(metadata: Readonly<Record<string, unknown>> | null | undefined): string[] {
  const tags = metadata?.tags;
  if (typeof tags === "string") return distinct(tags.split(",").map((tag) => tag.trim()));
  return Array.isArray(tags) ? distinct(tags.filter((tag) => typeof tag === "string")) : [];
}

function distinct(tags: readonly string[]): string[] {
  return [...new Set(tags)].filter((tag) => tag !== "");
}
