const MAX_NEAREST = 5;
/** Longest part of a name that is compared, in characters. */
const MAX_COMPARED_CHARACTERS = 100;
/** Lowest share of common character pairs that counts as similar. */
const LEAST_LIKENESS = 0.45;

/** The pairs of adjacent characters of a name in lower case, each as one number. */
export type CharacterPairs = ReadonlySet<number>;

export function characterPairs(text: string): CharacterPairs {
  const lower = text.slice(0, MAX_COMPARED_CHARACTERS).toLowerCase();
  const pairs = new Set<number>();
  for (let at = 1; at < lower.length; at++) {
    pairs.add(lower.charCodeAt(at - 1) * 65_536 + lower.charCodeAt(at));
  }
  return pairs;
}

/**
 * Returns at most 5 candidates most similar to `wanted`, best first: those that share most pairs of adjacent
 * characters with it (Dice's coefficient). A candidate with several spellings counts by its best one.
 */
export function nearestNames(
  wanted: string,
  candidates: readonly { readonly name: string; readonly spellings: readonly CharacterPairs[] }[],
): string[] {
  const pairs = characterPairs(wanted);
  if (pairs.size === 0) return [];
  return candidates
    .map(({ name, spellings }) => ({
      name,
      likeness: Math.max(...spellings.map((spelling) => likenessOf(pairs, spelling))),
    }))
    .filter(({ likeness }) => likeness >= LEAST_LIKENESS)
    .toSorted((left, right) => right.likeness - left.likeness)
    .slice(0, MAX_NEAREST)
    .map(({ name }) => name);
}

/** Returns "; did you mean X?" for the name most similar to `wanted`, or "" if no name is similar. */
export function didYouMean(wanted: string, names: readonly string[]): string {
  const candidates = names.map((name) => ({ name, spellings: [characterPairs(name)] }));
  const [nearest] = nearestNames(wanted, candidates);
  return nearest === undefined ? "" : `; did you mean ${nearest}?`;
}

/** Returns the Levenshtein distance, or infinity if it is above `most`. */
export function editDistance(left: string, right: string, most: number): number {
  if (left === right) return 0;
  if (Math.abs(left.length - right.length) > most) return Number.POSITIVE_INFINITY;
  let row = Array.from({ length: right.length + 1 }, (_, at) => at);
  for (let i = 1; i <= left.length; i++) {
    const next = [i];
    for (let j = 1; j <= right.length; j++) {
      const replaced = row[j - 1]! + (left[i - 1] === right[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  const distance = row[right.length]!;
  return distance > most ? Number.POSITIVE_INFINITY : distance;
}

function likenessOf(left: CharacterPairs, right: CharacterPairs): number {
  let shared = 0;
  for (const pair of left) if (right.has(pair)) shared++;
  return (2 * shared) / (left.size + right.size || 1);
}
