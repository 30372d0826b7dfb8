/** Ids carry their kind in front and sort by their time: a UUIDv7 without its dashes. */
export type IdPrefix = "req" | "key" | "org" | "txn" | "evt" | "ins" | "cmd" | "cmt" | "whk";

export function newId(prefix: IdPrefix): string {
  return `${prefix}_${Bun.randomUUIDv7().replaceAll("-", "")}`;
}
