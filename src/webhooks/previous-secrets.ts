/** A secret that a webhook had before, and until when it signs too. */
export interface PreviousSecret {
  readonly secret: string;
  readonly untilMs: number;
}

/** With more rotations than these within a day the oldest secret's time ends early. */
const MAX_PREVIOUS = 8;
/** No secret holds one: request bodies do not. */
const SEPARATOR = "\0";

/**
 * Previous secrets, the newest first, as the one text that is sealed. The first is its own text, its time
 * stands beside it; each further one brings its own time: `first NUL time:second NUL time:third`.
 */
export function previousText(previous: readonly PreviousSecret[]): string {
  const [first, ...further] = previous.slice(0, MAX_PREVIOUS);
  return [first!.secret, ...further.map(({ secret, untilMs }) => `${untilMs}:${secret}`)].join(
    SEPARATOR,
  );
}

/** What `previousText` made of them. */
export function readPreviousText(text: string, firstUntilMs: number): PreviousSecret[] {
  const [first, ...further] = text.split(SEPARATOR);
  return [
    { secret: first!, untilMs: firstUntilMs },
    ...further.map((one) => {
      const end = one.indexOf(":");
      return { secret: one.slice(end + 1), untilMs: Number(one.slice(0, end)) };
    }),
  ];
}
