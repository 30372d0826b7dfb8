const ISO_8601 =
  /^(\d{4})-(\d{2})-(\d{2})(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?:([Zz])|([+-]\d{2})(?::?(\d{2}))?)?)?$/;

/** Years of four digits are what ISO 8601 writes without a sign, and the database reads: 0001 to 9999, UTC. */
const MIN_TIME_MS = Date.parse("0001-01-01T00:00:00.000Z");
/** The last millisecond that can be told. */
export const MAX_TIME_MS = Date.parse("9999-12-31T23:59:59.999Z");

/** A point in time of ISO 8601, and whether it names a whole day. */
export interface IsoTime {
  readonly ms: number;
  readonly isWholeDay: boolean;
}

/** Reads an ISO 8601 date or date and time; without an offset it is UTC. Undefined where it is none. */
export function parseIsoTime(text: string): IsoTime | undefined {
  const match = ISO_8601.exec(text);
  if (!match) return undefined;
  const [, year, month, day, hour, minute, second = "00", fraction = "0"] = match;
  const isWholeDay = hour === undefined;
  const time = isWholeDay
    ? "00:00:00.000"
    : `${hour}:${minute}:${second}.${fraction.padEnd(3, "0").slice(0, 3)}`;
  const offset = match[9] === undefined ? "Z" : `${match[9]}:${match[10] ?? "00"}`;
  const ms = Date.parse(`${year}-${month}-${day}T${time}${offset}`);
  // The platform rolls 30 February over into March; such a date is none.
  const days = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate();
  if (Number.isNaN(ms) || Number(day) > days) return undefined;
  if (ms < MIN_TIME_MS || ms > MAX_TIME_MS) return undefined;
  return { ms, isWholeDay };
}

export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}
