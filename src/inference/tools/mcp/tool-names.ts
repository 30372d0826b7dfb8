/** Characters that names of functions cannot have. */
const NOT_IN_NAMES = /[^A-Za-z0-9_-]+/g;
const MAX_NAME_CHARACTERS = 64;
const HASH_CHARACTERS = 8;

/**
 * Returns the name of the function by which a model calls a server's tool. Different tools have different
 * names.
 */
export function functionOfTool(label: string, name: string): string {
  const plain = `${label}__${name}`;
  const clean = plain.replace(NOT_IN_NAMES, "_");
  if (clean === plain && clean.length <= MAX_NAME_CHARACTERS) return clean;
  const hash = Bun.hash.crc32(plain).toString(16).padStart(HASH_CHARACTERS, "0");
  return `${clean.slice(0, MAX_NAME_CHARACTERS - HASH_CHARACTERS - 1)}_${hash}`;
}
