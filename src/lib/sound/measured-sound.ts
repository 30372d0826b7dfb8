/** How long a sound plays, in seconds. */
export interface MeasuredSound {
  /** What its packets play, whatever its container says; at least what its bytes last at the codec's highest rate. */
  readonly seconds: number;
  /** The longest that a decoder may make of it: what its container states, or what its packets may hold. */
  readonly longestSeconds: number;
}

export const NO_SOUND: MeasuredSound = { seconds: 0, longestSeconds: 0 };

/** Streams of which a decoder plays one after the other. */
export function playedInTurn(sounds: readonly MeasuredSound[]): MeasuredSound {
  return {
    seconds: sounds.reduce((sum, { seconds }) => sum + seconds, 0),
    longestSeconds: sounds.reduce((sum, { longestSeconds }) => sum + longestSeconds, 0),
  };
}

/** Tracks of which a decoder plays one. */
export function longestOf(sounds: readonly MeasuredSound[]): MeasuredSound {
  return {
    seconds: Math.max(0, ...sounds.map(({ seconds }) => seconds)),
    longestSeconds: Math.max(0, ...sounds.map(({ longestSeconds }) => longestSeconds)),
  };
}
