/** The kinds of ids. An id is its kind and a UUIDv7 without dashes, so that ids sort by time. */
export type IdPrefix =
  | "req"
  | "key"
  | "opk"
  | "bud"
  | "org"
  | "team"
  | "mem"
  | "usr"
  | "inv"
  | "idp"
  | "txn"
  | "evt"
  | "ins"
  | "cmd"
  | "cmt"
  | "file"
  | "obj"
  | "sto"
  | "ftjob"
  | "whk"
  | "alc"
  | "pk"
  | "pre"
  | "gr"
  | "conv"
  | "vs"
  | "vsf"
  | "vsfb"
  | "cntr"
  | "batch"
  | "pbat"
  | "pay"
  | "pm"
  | "sub";

export function newId(prefix: IdPrefix): string {
  return `${prefix}_${Bun.randomUUIDv7().replaceAll("-", "")}`;
}

/**
 * Returns the time at which an id was created, in milliseconds since the epoch: the first 48 bits of a UUIDv7
 * (RFC 9562, section 5.7).
 */
export function timeOfId(id: string): number {
  return Number.parseInt(id.slice(id.indexOf("_") + 1, id.indexOf("_") + 13), 16);
}
