import type { KnownFolder } from "../../src/platform/storage/folder-mark.ts";

/** What a database would know of its folder of files: the first one is it. */
export function knownFolder(): KnownFolder {
  let known: string | undefined;
  return {
    read: async () => known,
    claim: async (id) => (known ??= id),
  };
}
