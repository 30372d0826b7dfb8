/** Most tags of one request. A request with more is rejected. */
export const MAX_TAGS = 32;

/**
 * Returns the distinct tags of a request. `metadata.tags` is a list of them, or one text with commas between
 * them. Elements of the list that are not strings are ignored.
 */
export function tagsOf(metadata: Readonly<Record<string, unknown>> | null | undefined): string[] {
  const tags = metadata?.tags;
  if (typeof tags === "string") return distinct(tags.split(",").map((tag) => tag.trim()));
  return Array.isArray(tags) ? distinct(tags.filter((tag) => typeof tag === "string")) : [];
}

function distinct(tags: readonly string[]): string[] {
  return [...new Set(tags)].filter((tag) => tag !== "");
}
