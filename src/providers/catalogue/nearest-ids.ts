const MAX_NEAREST = 5;
/** What a longer name has beyond these is not compared. */
const MAX_COMPARED_CHARACTERS = 100;
/** Of the pairs of characters of both; below it a likeness is chance. */
const LEAST_LIKENESS = 0.45;

/** An id as it is compared with names. */
export interface ComparedId {
  readonly id: string;
  readonly ofId: ReadonlySet<number>;
  readonly ofSlug: ReadonlySet<number>;
}

export function comparedId(id: string): ComparedId {
  return { id, ofId: pairsOf(id), ofSlug: pairsOf(id.slice(id.indexOf("/") + 1)) };
}

/**
 * The ids most like `name`, best first: those that share most pairs of neighbouring characters with it
 * (Dice's coefficient), by the whole id or by its slug.
 */
export function nearestIds(name: string, ids: readonly ComparedId[]): string[] {
  const wanted = pairsOf(name.slice(0, MAX_COMPARED_CHARACTERS));
  if (wanted.size === 0) return [];
  const scored: { id: string; likeness: number }[] = [];
  for (const { id, ofId, ofSlug } of ids) {
    const likeness = Math.max(likenessOf(wanted, ofId), likenessOf(wanted, ofSlug));
    if (likeness >= LEAST_LIKENESS) scored.push({ id, likeness });
  }
  return scored
    .toSorted((one, other) => other.likeness - one.likeness)
    .slice(0, MAX_NEAREST)
    .map(({ id }) => id);
}

function pairsOf(text: string): Set<number> {
  const lower = text.toLowerCase();
  const pairs = new Set<number>();
  for (let at = 1; at < lower.length; at++) {
    pairs.add(lower.charCodeAt(at - 1) * 65_536 + lower.charCodeAt(at));
  }
  return pairs;
}

function likenessOf(one: ReadonlySet<number>, other: ReadonlySet<number>): number {
  let shared = 0;
  for (const pair of one) if (other.has(pair)) shared++;
  return (2 * shared) / (one.size + other.size || 1);
}
