/** A seeded source of numbers in [0, 1) (mulberry32), so that a failing run can be replayed. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const LONGEST_PIECE_BYTES = 4096;

/** Lengths for cutting a byte stream, evenly over the orders of magnitude: from single bytes to several events. */
export function randomPieceLength(random: () => number): number {
  return Math.floor(LONGEST_PIECE_BYTES ** random());
}
